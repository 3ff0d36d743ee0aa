/** Writes a program as MSCCL++'s JSON without ever holding its whole plan. */
import { type CompileOptions, compatRanks, compile, type Program } from "../compiler/index.ts";
import { type MscclppHeader, mscclppCollective, writeMscclppPieces } from "./write-mscclpp-json.ts";

/**
 * Writes the MSCCL++ plan of a program in pieces, one rank in memory at a time. With `compat`, byte for byte what the
 * MSCCL++ 0.9 DSL prints.
 */
export function writeMscclpp(p: Program, sink: (piece: string) => void, options: CompileOptions = {}): void {
  const compat = options.compat === "mscclpp";
  const header: MscclppHeader = {
    name: p.name,
    collective: mscclppCollective({ collective: p.collective }),
    inPlace: p.collective.inPlace,
    options: p.options,
  };
  writeMscclppPieces(
    header,
    compat ? compatRanks(p, false) : compile(p, { ...options, target: "mscclpp" }).ranks,
    sink,
  );
}
