/** What each rank of the oversubscription measurement runs. Imports by name: see bench-rank.ts. */
export { runOversubscribedRank as default } from "chorale/bench";
