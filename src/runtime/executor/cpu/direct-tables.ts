/**
 * Reductions whose operands need no table of their own: ranks that have met know where everybody's input and output lie, in
 * tables by rank. A reduction over all ranks' buffers, in rank order and at one offset, is a kernel's call on these tables, as
 * a collective by hand makes it.
 */
import { COPY_KERNEL } from "../wasm/reduce-kernels.ts";
import { CODE, DATA, RECORD } from "./image.ts";

/** Notes in a data record at word `at`, of which the size is known, which tables it can use as they are. */
export function findTables(words: Int32Array, at: number): void {
  const numIn = words[at + DATA.numIn]!;
  const ins = at + DATA.ranges;
  const outs = ins + 2 * numIn;
  const isReduction = words[at + RECORD.code] === CODE.move && words[at + DATA.kernel] !== COPY_KERNEL;
  const start = words[ins + 1]!;
  const inTable = isReduction ? tableAt(words, ins, numIn, start) : 0;
  words[at + DATA.inTable] = inTable;
  words[at + DATA.outTable] = inTable === 0 ? 0 : tableAt(words, outs, words[at + DATA.numOut]!, start);
  words[at + DATA.start] = inTable === 0 ? 0 : start;
}

/** Address of the first of some ranges' bases, if these lie one behind the other and all ranges begin at `start`; else 0. */
function tableAt(words: Int32Array, ranges: number, count: number, start: number): number {
  const first = words[ranges]!;
  for (let i = 0; i < count; i++) {
    if (words[ranges + 2 * i] !== first + 4 * i || words[ranges + 2 * i + 1] !== start) return 0;
  }
  return first;
}
