/** What a supervisor is told: `launch()`'s options, checked and filled in. */
import type { BackendKind, Isolation } from "../comm/index.ts";
import type { ElasticHosts } from "./elastic-hosts.ts";
import type { WorldEvent } from "./events.ts";
import type { MirrorWay } from "./host-side.ts";
import type { Job, Place } from "./messages.ts";
import type { OutputLine } from "./output.ts";
import type { RankHost } from "./rank-host.ts";
import type { RestartPolicy } from "./restart-policy.ts";

export interface WorldSpec {
  readonly ranks: number;
  readonly kind: BackendKind;
  readonly backendOptions: object | undefined;
  readonly isolation: Isolation;
  /** The secret that the hosts of the world share, where there are several. */
  readonly worldSecret?: string | undefined;
  /** The way to the launchers of the other hosts, where there are several. */
  readonly mirrors?: MirrorWay | undefined;
  readonly policy: RestartPolicy;
  /** Where the number of hosts may change. */
  readonly hosts?: ElasticHosts | undefined;
  readonly timeoutMs: number | undefined;
  readonly graceMs: number | undefined;
  readonly signal: AbortSignal | undefined;
  readonly env: Readonly<Record<string, string>> | undefined;
  readonly onOutput: ((line: OutputLine) => void) | undefined;
  readonly onEvent: ((event: WorldEvent) => void) | undefined;
  /** What every rank is told, whatever its place. */
  readonly job: Omit<Job, keyof Place | "rebuild">;
  /** Starts a rank, in the place of `instead` where one has died. @throws UnavailableError when its host is gone */
  takeHost(instead?: RankHost): RankHost;
}
