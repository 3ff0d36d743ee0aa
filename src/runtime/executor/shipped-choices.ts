/**
 * The tables that come with chorale. A row stands here only if it was measured: the command and the result's file are
 * named beside the tables. The last document that is asked must have a table for every collective of its backends.
 */
import { COLLECTIVE_NAMES, type CollectiveName } from "../../collectives/index.ts";
import { MOST_BUILT_RANKS } from "./built-plans.ts";
import { CHOICES_SCHEMA_VERSION, type ChoiceDocument, type ChoiceTable } from "./choices.ts";
import { FOUR_DEVICES } from "./four-device-choices.ts";

/** More ranks than any world has. */
const ANY_RANKS = [1, 1 << 20] as const;

/** Rows by first size. */
const rows = (...list: readonly (readonly [fromBytes: number, use: string, captured?: string])[]) =>
  list.map(([fromBytes, use, captured]) => ({ fromBytes, use, ...(captured !== undefined && { captured }) }));
const [KI, MI, GI] = [1024, 1024 ** 2, 1024 ** 3];

const threadsKernel = (collective: CollectiveName) =>
  collective === "all_reduce" ? "two-shot-kernel" : "direct-kernel";

/**
 * Plans of one pass, which move what the kernels move: from the sizes on where they take as long, with two ranks
 * (bench/results/plans-two-cores-2026-11-28.md) and with more (bench/results/plans-32-cores-2026-11-24.md). Where ranks share cores, times differ too much from run to run to tell, and
 * kernels serve.
 */
const ONE_PASS: readonly (readonly [CollectiveName, use: string, fromOfTwo: number, fromOfMore: number])[] = [
  ["all_reduce", "two-shot-fused-read-all-reduce", 32 * KI, 32 * KI],
  ["reduce", "one-pass-reduce", 2 * KI, 8 * KI],
  ["reduce_scatter", "one-pass-reduce-scatter", 512, 8 * KI],
  ["all_gather", "one-pass-all-gather", 512, 16 * KI],
  ["all_to_all", "one-pass-all-to-all", 4 * KI, 8 * KI],
  ["broadcast", "one-pass-broadcast", 4 * KI, 32 * KI],
  ["scatter", "one-pass-scatter", 32 * KI, 64 * KI],
  ["gather", "direct-gather", 32 * KI, 32 * KI],
];
const THREADS_PLANS: readonly ChoiceTable[] = ONE_PASS.flatMap(([collective, use, fromOfTwo, fromOfMore]) => {
  const table = (ranks: readonly [number, number], fromBytes: number): ChoiceTable => ({
    backend: "threads",
    collective,
    ranks,
    topology: "own-cores",
    built: true,
    rows: rows([0, threadsKernel(collective)], [fromBytes, use]),
  });
  return [table([2, 2], fromOfTwo), table([3, MOST_BUILT_RANKS], fromOfMore)];
});

/** Threads of one process move shares of each other's buffers: what serves where no table of plans does. */
const THREADS: readonly ChoiceTable[] = COLLECTIVE_NAMES.map((collective) => ({
  backend: "threads",
  collective,
  ranks: ANY_RANKS,
  rows: rows([0, threadsKernel(collective)]),
}));

/** Packets up to some MiB: no barrier, and right also where a result lies on its input. */
const packets = (collective: string) =>
  [
    [0, `packet-${collective}*4@256.lines`],
    [32 * KI + 1, `packet-${collective}*32@256.lines`],
    [128 * KI + 1, `packet-${collective}*64@256.lines`],
    [512 * KI + 1, `packet-${collective}*128@512.lines`],
  ] as const;
const ALL_REDUCE_PACKETS = [
  [0, "one-shot-packet-all-reduce*2@256.lines"],
  [8 * KI + 1, "one-shot-packet-all-reduce*16@256.lines"],
  [128 * KI + 1, "one-shot-packet-all-reduce*64@512.lines"],
  // Fewer bytes pay where a strand has many lines: bench/results/cuda-links-4-gpus-2026-11-28.md.
  [512 * KI + 1, "one-shot-packet-all-reduce*64@512.sheets"],
] as const;

type Rows = ReturnType<typeof rows>;

/**
 * Two GPUs over NVLink, H200 and H100 alike: `node bench/cuda-backend.mjs`, bench/results/cuda-backend-2026-11-24.md and
 * cuda-run-ahead-2026-11-24.md. By copy engines above 128 MiB: cuda-copy-engines-2026-11-29.md, on H200s, and H100s copy as fast. Above the last size that was measured NCCL serves where a plan's scratch grows with the message,
 * and wherever a plan is not 1.03 times as fast. Among processes a direct call waits until all have said where its buffers are, if
 * a kernel reaches them, and a replay does not: so graphs have such kernels where they are faster (cuda-captured-2026-11-29.md).
 */
const PAIR: readonly (readonly [how: "threads" | "processes", collective: string, rows: Rows])[] = [
  [
    "threads",
    "all_reduce",
    rows(
      ...ALL_REDUCE_PACKETS,
      [6 * MI + 1, "two-phase-all-reduce*64@256"],
      [40 * MI + 1, "streaming-all-reduce*66@512.unit128K"],
      [128 * MI + 1, "streaming-all-reduce*66@512.unit256K"],
      [GI + 1, "two-phase-all-reduce*132@512"],
    ),
  ],
  [
    "threads",
    "all_gather",
    rows(
      ...packets("all-gather"),
      [8 * MI + 1, "streaming-all-gather*66@512"],
      [128 * MI + 1, "direct-all-gather*16@copies.512"],
    ),
  ],
  [
    "threads",
    "reduce_scatter",
    rows(
      ...packets("reduce-scatter"),
      [8 * MI + 1, "read-reduce-scatter*64@256.u8"],
      [40 * MI + 1, "streaming-reduce-scatter*100@512.unit64K"],
      [128 * MI + 1, "streaming-reduce-scatter*66@512.unit128K"],
      [GI + 1, "nccl"],
    ),
  ],
  [
    "processes",
    "all_reduce",
    rows(
      ...ALL_REDUCE_PACKETS,
      [6 * MI + 1, "streaming-all-reduce*100@512.unit64K", "two-phase-all-reduce*64@256"],
      [40 * MI + 1, "streaming-all-reduce*66@512.unit128K"],
      [128 * MI + 1, "streaming-all-reduce*66@512.unit256K"],
      [GI + 1, "nccl"],
    ),
  ],
  [
    "processes",
    "all_gather",
    rows(
      ...packets("all-gather"),
      [8 * MI + 1, "staged-all-gather*88@512.unit64K", "streaming-all-gather*66@512"],
      [40 * MI + 1, "staged-all-gather*66@512.unit128K", "streaming-all-gather*66@512"],
      [128 * MI + 1, "direct-all-gather*16@copies.512"],
    ),
  ],
  [
    "processes",
    "reduce_scatter",
    rows(
      ...packets("reduce-scatter"),
      [8 * MI + 1, "streaming-reduce-scatter*100@512.unit64K"],
      [128 * MI + 1, "streaming-reduce-scatter*66@512.unit128K"],
      [GI + 1, "nccl"],
    ),
  ],
];

/** Operations whose plans are the same among threads and processes. */
const ALL_TO_ALL = rows(
  ...packets("all-to-all"),
  [8 * MI + 1, "staged-all-to-all*66@512.unit64K"],
  [40 * MI + 1, "staged-all-to-all*66@512.unit128K"],
  [128 * MI + 1, "direct-all-to-all*16@copies.512"],
);
const SCATTER = rows(
  ...packets("scatter"),
  [8 * MI + 1, "staged-scatter*66@512.unit64K"],
  [40 * MI + 1, "staged-scatter*66@512.unit128K"],
  [128 * MI + 1, "direct-scatter*16@copies.512"],
);
const H200_ROOTED: Readonly<Record<string, Rows>> = {
  all_to_all: ALL_TO_ALL,
  broadcast: rows(
    ...packets("broadcast"),
    [8 * MI + 1, "staged-broadcast*66@512.unit128K"],
    [128 * MI + 1, "direct-broadcast*16@copies.512"],
  ),
  reduce: rows(...packets("reduce"), [8 * MI + 1, "nccl"]),
  gather: rows(...packets("gather"), [8 * MI + 1, "nccl"], [128 * MI + 1, "direct-gather*16@copies.512"]),
  scatter: SCATTER,
};
const H100_ROOTED: Readonly<Record<string, Rows>> = {
  all_to_all: ALL_TO_ALL,
  broadcast: rows(
    [0, "packet-broadcast*4@256.lines"],
    [8 * KI + 1, "packet-broadcast*8@256.lines"],
    [32 * KI + 1, "packet-broadcast*32@256.lines"],
    [128 * KI + 1, "packet-broadcast*64@512.lines"],
    [512 * KI + 1, "packet-broadcast*128@512.lines"],
    [8 * MI + 1, "staged-broadcast*66@512.unit128K"],
    [128 * MI + 1, "nccl"],
  ),
  reduce: rows(
    [0, "packet-reduce*4@256.lines"],
    [8 * KI + 1, "packet-reduce*8@256.lines"],
    [32 * KI + 1, "packet-reduce*32@256.lines"],
    [128 * KI + 1, "packet-reduce*64@512.lines"],
    [8 * MI + 1, "staged-reduce*100@512.unit64K"],
    [40 * MI + 1, "nccl"],
  ),
  gather: rows(
    [0, "packet-gather*4@256.lines"],
    [32 * KI + 1, "packet-gather*16@256.lines"],
    [128 * KI + 1, "packet-gather*64@512.lines"],
    [8 * MI + 1, "staged-gather*66@512.unit128K"],
    [40 * MI + 1, "staged-gather*66@512.unit256K"],
    [128 * MI + 1, "nccl"],
  ),
  scatter: SCATTER,
};

const PAIRS: readonly ChoiceTable[] = (
  [
    ["nvidia-h200", H200_ROOTED],
    ["nvidia-h100-80gb-hbm3", H100_ROOTED],
  ] as const
).flatMap(([gpu, rooted]) => {
  const table = (how: string, collective: string, found: Rows): ChoiceTable => ({
    backend: "cuda",
    collective: collective as CollectiveName,
    ranks: [2, 2],
    topology: `${gpu} ${how}`,
    rows: found,
  });
  return [
    ...PAIR.map(([how, collective, found]) => table(how, collective, found)),
    ...["threads", "processes"].flatMap((how) =>
      Object.entries(rooted).map(([collective, found]) => table(how, collective, found)),
    ),
  ];
});

const FOURS: readonly ChoiceTable[] = Object.entries(FOUR_DEVICES).flatMap(([collective, found]) =>
  (["threads", "processes"] as const).map((how) => ({
    backend: "cuda",
    collective: collective as CollectiveName,
    ranks: [4, 4],
    topology: `nvidia-h200 ${how}`,
    rows: rows(...found.both, ...found[how]),
  })),
);

/** NCCL serves what nobody has measured. */
const CUDA: readonly ChoiceTable[] = [
  ...PAIRS,
  ...FOURS,
  ...COLLECTIVE_NAMES.map((collective) => ({
    backend: "cuda",
    collective,
    ranks: ANY_RANKS,
    rows: [{ fromBytes: 0, use: "nccl" }],
  })),
];

/** MPI serves what nobody has measured. */
const MPI: readonly ChoiceTable[] = COLLECTIVE_NAMES.map((collective) => ({
  backend: "mpi",
  collective,
  ranks: ANY_RANKS,
  rows: [{ fromBytes: 0, use: "mpi" }],
}));

export const SHIPPED_CHOICES: ChoiceDocument = {
  schemaVersion: CHOICES_SCHEMA_VERSION,
  source: "shipped",
  date: "2026-11-29",
  tables: [...THREADS_PLANS, ...THREADS, ...CUDA, ...MPI],
};

/** The plans that come compiled for groups of so many ranks: those that shipped tables have built, by collective and name. */
export function builtUses(numRanks: number): readonly (readonly [CollectiveName, string])[] {
  return SHIPPED_CHOICES.tables
    .filter(({ built, ranks: [least, most] }) => built === true && numRanks >= least && numRanks <= most)
    .flatMap(({ collective, rows }) =>
      [...new Set(rows.map(({ use }) => use))].map((use) => [collective, use] as const),
    )
    .filter(([, use]) => !use.endsWith("-kernel"));
}
