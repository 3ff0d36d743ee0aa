/**
 * Measures which algorithm serves a collective fastest on this machine, and what its ranks cost the simulator.
 * Refuses to choose what is not clearly faster than the shipped choice, and what gives a wrong result.
 * Start reading in tune-collective.ts.
 */
export { type Candidate, candidatesOf, rankCandidates } from "./candidates.ts";
export {
  type TunedSize,
  type TuneOptions,
  type TuneResult,
  tuneCollective,
} from "./tune-collective.ts";
export { requireChoicesFile, storeTable, storeTuning, type TunedMachine, tunedMachine } from "./tuned-machine.ts";
