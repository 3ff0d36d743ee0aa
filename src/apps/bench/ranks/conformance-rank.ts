/** What each rank of the conformance suite runs. Imports by name, so that it shares the classes of the running copy. */
export { runConformanceRank as default } from "chorale/bench";
