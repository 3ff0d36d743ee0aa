/** Assembles the plan of one rank from its recording and its finished strands. */
import {
  BUFFERS,
  type BufferKind,
  type ChannelKind,
  type RankPlan,
  type RemoteBuffer,
  type Strand,
} from "../plan/index.ts";
import type { RankRecord } from "./rank-records.ts";

/** Names of the kinds of channel, by the number that a recording uses. */
export const KIND_NAMES = ["memory", "port", "switch"] as const;

/** A rank's plan from its strands: channels, semaphores and buffers replicated. */
export function assembleRank(
  record: RankRecord,
  instances: number,
  strands: readonly Strand[],
  segments = { input: 1, output: 1 },
): RankPlan {
  const each = <T>(list: readonly T[]): T[] =>
    instances === 1 ? [...list] : list.flatMap((item) => Array<T>(instances).fill(item));
  const remoteBuffers: RemoteBuffer[] = [...record.remotes].map(([key, { kinds }]) => ({
    rank: key >> 2,
    buffer: BUFFERS[key & 3] as BufferKind,
    access: Array.from(kinds, (kind) => KIND_NAMES[kind] as ChannelKind),
  }));
  return {
    rank: record.rank,
    input: { chunks: record.inputChunks * instances, segments: segments.input },
    output: { chunks: record.outputChunks * instances, segments: segments.output },
    scratch: { chunks: record.scratchChunks * instances, segments: 1 },
    channels: {
      memory: each(record.memory),
      port: each(record.port),
      switch: each(record.switches).map(({ buffer, ranks }) => ({ buffer: BUFFERS[buffer] as BufferKind, ranks })),
    },
    ...(record.ways.length === 0
      ? {}
      : {
          ways: record.ways.flatMap(({ kind, channel, nodes }) =>
            Array.from({ length: instances }, (_, i) => ({ kind, channel: channel * instances + i, nodes })),
          ),
        }),
    semaphores: each(record.semaphores).map((initialValue) => ({ initialValue })),
    strands,
    tables: { remoteBuffers, channelKinds: record.channelKinds.map((kind) => KIND_NAMES[kind] as ChannelKind) },
  };
}
