/** What the command line must know of worlds beyond what programs use. */
export { numStoppingThreads } from "./rank-worker.ts";
