/** What each rank of a benchmark runs. Imports by name, so that it shares the classes of the running copy. */
export { runBenchRank as default } from "chorale/bench";
