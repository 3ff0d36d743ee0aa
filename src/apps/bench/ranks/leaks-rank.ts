/** What each rank of the leak campaign runs. */
export { runLeakRank as default } from "../leaks/rank.ts";
