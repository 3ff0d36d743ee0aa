/** Starts the ranks of a bench, whose rank 0 prints its rows as it measures them. */
import {
  type BackendName,
  type BackendOptions,
  type Isolation,
  launch,
  loadableUrl,
} from "../../../runtime/world/index.ts";

interface BenchWorld<Row> {
  readonly ranks: number;
  readonly backend: BackendName;
  readonly isolation?: Isolation;
  readonly backendOptions?: BackendOptions;
  readonly timeoutMs?: number;
  /** The ranks' program, below src/. */
  readonly module: string;
  /** What lines begin with that are rows. */
  readonly prefix: string;
  readonly onRow?: (row: Row) => void;
}

/** @returns what rank 0 gives */
export async function launchBench<Report, Job, Row>(data: Job, world: BenchWorld<Row>): Promise<Report | undefined> {
  const { ranks, backend, isolation, backendOptions, timeoutMs, module, prefix, onRow } = world;
  const [report] = await launch<Report, Job>({
    ranks,
    module: loadableUrl(module),
    data,
    backend,
    ...(isolation === undefined ? {} : { isolation }),
    ...(backendOptions === undefined ? {} : { backendOptions }),
    ...(timeoutMs === undefined ? {} : { timeoutMs }),
    onOutput: ({ rank, stream, text }) => {
      if (text.startsWith(prefix)) onRow?.(JSON.parse(text.slice(prefix.length)) as Row);
      else process.stderr.write(`[${rank}${stream === "stderr" ? " stderr" : ""}] ${text}\n`);
    },
  });
  return report;
}
