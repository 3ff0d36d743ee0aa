/**
 * Algorithms for switches that reduce and broadcast (NVLink SHARP and its like): each rank hands its share of the chunks
 * to the switch. As MSCCL++'s `allreduce_nvls` and `allgather_nvls`. Needs multicast memory; on engines without it, use
 * two-shot.
 */
import { allGather, allReduce, type Program, program } from "../language/index.ts";
import { type AlgorithmArgs, settings } from "./algorithm-args.ts";

/** Rank r has the switch reduce chunk r of all inputs and store it to all outputs. */
export function switchAllReduce(args: AlgorithmArgs): Program {
  const { numRanks: n, inPlace } = args;
  return program({ ...settings("switch-all-reduce", args), collective: allReduce(n, { ...args, chunks: n }) }, (p) => {
    const inputs = p.switchChannel(p.ranks, "input");
    const outputs = inPlace ? inputs : p.switchChannel(p.ranks, "output");
    for (const rank of p.ranks) {
      const sum = inPlace ? rank.input.at(rank.id) : rank.output.at(rank.id);
      inputs.at(rank).reduce(sum, rank.id);
      outputs.at(rank).broadcast(sum, rank.id);
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
