/**
 * Measures which algorithm serves a collective fastest on this machine, which variant of a user's program runs fastest, and what
 * ranks cost the simulator. Refuses to choose what is not clearly faster than what serves now, and what gives a wrong result.
 * Start reading in tune-collective.ts and tune-program.ts.
 */
export { type Candidate, candidatesOf, rankCandidates } from "./candidates.ts";
export type { ProgramSearch, ProgramSource, RankingMachine } from "./program-variants.ts";
export {
  type TunedSize,
  type TuneOptions,
  type TuneResult,
  tuneCollective,
} from "./tune-collective.ts";
export { type TunedProgramSize, type TuneProgramOptions, type TuneProgramResult, tuneProgram } from "./tune-program.ts";
export {
  machineToTune,
  requireChoicesFile,
  storeProgramTuning,
  storeTable,
  storeTuning,
  type TunedMachine,
  tunedMachine,
} from "./tuned-machine.ts";
