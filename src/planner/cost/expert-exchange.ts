/**
 * What expert parallelism exchanges: every token's hidden state goes to the ranks that hold its experts, and their results
 * come back. A rank that holds several of a token's experts gets it once (DeepEP, pplx-kernels, TensorRT-LLM's all-to-all).
 * Across hosts a token crosses the network once for each host, and is handed on inside it; node-limited routing (DeepSeek-V3,
 * arXiv 2412.19437, section 2.1.2) bounds how many hosts that are.
 */
import type { GroupLink } from "../placement/fabric.ts";
import { allToAllUs } from "./collectives.ts";

export interface ExpertExchange {
  /** Tokens of one rank. */
  readonly tokens: number;
  readonly expertsPerToken: number;
  /** Most groups of experts that a token's may come from, where the router limits them; a host holds a group or more. */
  readonly groupLimit: number | undefined;
  /** Bytes of one token on its way to an expert (1 an element in FP8), and of its result. */
  readonly dispatchBytes: number;
  readonly combineBytes: number;
  readonly ep: number;
  /** Serving engines gather all tokens on every rank of a small group (vLLM's and TensorRT-LLM's default inside a host). */
  readonly gathersSmallGroups: boolean;
  readonly link: GroupLink | undefined;
}

/** Most ranks whose tokens are gathered rather than sent to where they are wanted. */
const MAX_GATHERED_RANKS = 8;

/** How many of `places` equal places hold at least one of `chosen` experts, on average. */
function distinctPlaces(places: number, chosen: number): number {
  return places * (1 - (1 - 1 / places) ** chosen);
}

/** Dispatch and combine of one layer, microseconds. */
export function expertExchangeUs(exchange: ExpertExchange): number {
  const { tokens, expertsPerToken, groupLimit, ep, link, gathersSmallGroups } = exchange;
  if (ep <= 1 || link === undefined) return 0;
  const hosts = link.scope === "network" ? link.hosts : 1;
  const ranksReached = distinctPlaces(ep, expertsPerToken);
  let us = 0;
  for (const bytes of [exchange.dispatchBytes, exchange.combineBytes]) {
    if (hosts <= 1) {
      const copies = gathersSmallGroups && ep <= MAX_GATHERED_RANKS ? ep : ranksReached;
      us += allToAllUs(tokens * copies * bytes, ep, link);
      continue;
    }
    const hostsReached = Math.min(distinctPlaces(hosts, expertsPerToken), groupLimit ?? hosts);
    us += allToAllUs(tokens * hostsReached * bytes, hosts, link);
    // A limit on hosts gathers the same experts in fewer of them.
    us += allToAllUs(tokens * ranksReached * bytes, Math.max(1, Math.round(ep / hosts)), link.inner);
  }
  return us;
}
