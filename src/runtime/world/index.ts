export { type BackendName, type BackendOptions, LAUNCH_BACKENDS, parseBackend } from "./engine.ts";
export { joinWorld } from "./join.ts";
export { DEFAULT_GRACE_MS, type LaunchOptions, launch, MAX_RANKS, type RankFunction } from "./launch.ts";
export { loadableUrl, packageRoot, version } from "./location.ts";
export type { OutputLine, OutputStream } from "./output.ts";
export { type Isolation, ISOLATIONS, parseIsolation } from "./rank-host.ts";
export { closeRankPool, runRanks } from "./run-ranks.ts";
export { bundleUserModule, importUserModule, type UserModule } from "./user-module.ts";
export { deviceOf, type World } from "./world.ts";
