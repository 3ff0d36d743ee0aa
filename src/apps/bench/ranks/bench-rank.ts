/** What each rank of a benchmark runs. */
export { runBenchRank as default } from "../collectives/rank.ts";
