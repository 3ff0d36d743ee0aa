/** What each rank of the oversubscription measurement runs. */
export { runOversubscribedRank as default } from "../oversubscribed.ts";
