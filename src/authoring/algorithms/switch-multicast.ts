/**
 * Algorithms for switches that reduce and broadcast (NVLink SHARP and its like): each rank hands its share of the chunks
 * to the switch. As MSCCL++'s `allreduce_nvls` and `allgather_nvls`. Needs multicast memory; on engines without it, use
 * two-shot.
 */
import { allGather, allReduce, type Program, program } from "../language/index.ts";
import { type AlgorithmArgs, settings } from "./algorithm-args.ts";

export interface SwitchAllReduceArgs extends AlgorithmArgs {
  /** Pieces of a rank's chunk: out of place one is stored to all while the next is reduced. */
  readonly chunks?: number;
}

/**
 * Rank r has the switch reduce chunk r of all inputs and store it to all outputs: in place as one operation, out of place as
 * two, on strands of their own where there are several pieces.
 */
export function switchAllReduce(args: SwitchAllReduceArgs): Program {
  const { numRanks: n, inPlace } = args;
  const pieces = args.chunks ?? 1;
  const collective = allReduce(n, { ...args, chunks: n * pieces });
  return program({ ...settings("switch-all-reduce", args), collective }, (p) => {
    const inputs = p.switchChannel(p.ranks, "input");
    const outputs = inPlace ? inputs : p.switchChannel(p.ranks, "output");
    const store = pieces > 1 && !inPlace ? 1 : 0;
    for (const rank of p.ranks)
      for (let c = rank.id * pieces; c < (rank.id + 1) * pieces; c++) {
        const sum = inPlace ? rank.input.at(c) : rank.output.at(c);
        inputs.at(rank).reduce(sum, c);
        outputs.at(rank).broadcast(sum, c, store);
      }
  });
}

/** Rank r has the switch store its input to all outputs. */
export function switchAllGather(args: AlgorithmArgs): Program {
  const { numRanks: n } = args;
  return program({ ...settings("switch-all-gather", args), collective: allGather(n, args) }, (p) => {
    const outputs = p.switchChannel(p.ranks, "output");
    for (const rank of p.ranks) outputs.at(rank).broadcast(rank.input.at(0), rank.id);
  });
}
