/** Starts the ranks of a bench, whose rank 0 prints its rows as it measures them. */
import { InvalidArgumentError } from "../../../core/index.ts";
import { described } from "../../../core/internal.ts";
import {
  type BackendName,
  type BackendOptions,
  type Isolation,
  launch,
  loadableUrl,
  type NodesOptions,
} from "../../../runtime/world/index.ts";

/** The ranks of one host: each has as many. @throws InvalidArgumentError where the number of hosts may change */
export function ranksOfHost(ranks: number, nodes: NodesOptions | undefined): number {
  const count = nodes?.count ?? 1;
  if (typeof count === "number") return ranks / count;
  throw new InvalidArgumentError(
    "--nnodes",
    `${count.min}:${count.max}`,
    "one number of hosts: all are measured together",
  );
}

/** The error of a world whose hosts were given different numbers of ranks. */
export function otherRanks(numRanks: number, expected: number): InvalidArgumentError {
  return new InvalidArgumentError(
    "-n",
    described(`of ${numRanks} ranks in all`),
    `${expected}: the same -n on every host`,
  );
}

interface BenchWorld<Row> {
  /** Of all hosts. */
  readonly ranks: number;
  readonly nodes?: NodesOptions | undefined;
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
  const { ranks, nodes, backend, isolation, backendOptions, timeoutMs, module, prefix, onRow } = world;
  const [report] = await launch<Report, Job>({
    ranks: ranksOfHost(ranks, nodes),
    ...(nodes === undefined ? {} : { nodes }),
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
