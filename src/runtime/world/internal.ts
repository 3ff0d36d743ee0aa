/** What the command line must know of worlds beyond what programs use. */
export { onFlightAsked } from "./asked-flight.ts";
export { ignoreDebugSignal } from "./debug-signal.ts";
export { checkUnstarted } from "./launch.ts";
export { numStoppingThreads } from "./rank-worker.ts";
