/**
 * Worlds: launching ranks, joining them, supervising them, and rebuilding after a failure.
 * Refuses to know a backend but through its BackendKind in backend-table.ts.
 * Start with launch.ts and supervisor.ts (the launcher's side), rank-entry.ts and join.ts (a rank's side).
 */

export { ISOLATIONS, type Isolation, parseIsolation } from "../comm/index.ts";
export { nodePlace, nodeRendezvous, type StoreOptions, type WorldStore } from "../rendezvous/index.ts";
export {
  type BackendName,
  type BackendOptions,
  type BackendOptionsOf,
  backendKind,
  DEFAULT_BACKEND,
  LAUNCH_BACKENDS,
  parseBackend,
  parseBackendOptions,
} from "./backend-table.ts";
export { BINDINGS, type Binding } from "./cpu-binding.ts";
export { type RankOrigin, WORLD_CHANNEL, type WorldEvent } from "./events.ts";
export { type JoinOptions, joinWorld } from "./join.ts";
export { launch } from "./launch.ts";
export { type LaunchOptions, MAX_RANKS, type RankFunction } from "./launch-options.ts";
export type { HostRange, NodesOptions } from "./node-options.ts";
export type { OutputLine, OutputStream } from "./output.ts";
export { loadableUrl, packageRoot, version } from "./package-location.ts";
export {
  DEFAULT_RESTARTS,
  FAILURE_POLICIES,
  type FailurePolicy,
  parseFailurePolicy,
  type RestartOptions,
} from "./restart-policy.ts";
export { closeRankPool, runRanks } from "./run-ranks.ts";
export { type SharedState, shareState } from "./share-state.ts";
export { DEFAULT_GRACE_MS } from "./supervisor.ts";
export { bundleUserModule, importUserModule, type UserModule } from "./user-module.ts";
export { deviceOf, storeOf, type World } from "./world.ts";
