export {
  type BackendName,
  type BackendOptions,
  type BackendOptionsOf,
  LAUNCH_BACKENDS,
  type NcclOptions,
  parseBackend,
  parseBackendOptions,
  type ThreadsOptions,
} from "./backend-options.ts";
export { type RankOrigin, WORLD_CHANNEL, type WorldEvent } from "./events.ts";
export { type JoinOptions, joinWorld } from "./join.ts";
export { type LaunchOptions, launch, MAX_RANKS, type RankFunction } from "./launch.ts";
export { loadableUrl, packageRoot, version } from "./location.ts";
export type { OutputLine, OutputStream } from "./output.ts";
export { ISOLATIONS, type Isolation, parseIsolation } from "./rank-host.ts";
export {
  DEFAULT_RESTARTS,
  FAILURE_POLICIES,
  type FailurePolicy,
  parseFailurePolicy,
  type RestartOptions,
} from "./restart-policy.ts";
export { closeRankPool, runRanks } from "./run-ranks.ts";
export { DEFAULT_GRACE_MS } from "./supervisor.ts";
export { bundleUserModule, importUserModule, type UserModule } from "./user-module.ts";
export { deviceOf, type World } from "./world.ts";
