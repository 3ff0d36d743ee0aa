/** What each rank of the conformance suite runs. */
export { runConformanceRank as default } from "../conformance/rank.ts";
