/**
 * What serves four H200s over NVLink, by size: bench/results/cuda-backend-4-gpus-2026-11-28.md and cuda-2-and-4-gpus-2026-11-29.md
 * say how it was measured. NCCL serves where no plan is 1.03 times as fast, and above the last size that was measured where a plan's
 * scratch grows with the message.
 */
import type { CollectiveName } from "../../collectives/index.ts";

const [KI, MI] = [1024, 1024 ** 2];

type Row = readonly [fromBytes: number, use: string, captured?: string];
/**
 * Small messages go the same way among threads and processes. Large ones reach other ranks' buffers, which costs direct calls of processes
 * more than it saves: they do so in graphs (cuda-captured-2026-11-29.md).
 */
interface ByIsolation {
  readonly both: readonly Row[];
  readonly threads: readonly Row[];
  readonly processes: readonly Row[];
}

export const FOUR_DEVICES: { readonly [C in CollectiveName]?: ByIsolation } = {
  all_reduce: {
    both: [
      [0, "one-shot-packet-all-reduce*1@256.lines"],
      [8 * KI + 1, "one-shot-packet-all-reduce*4@256.lines"],
      [32 * KI + 1, "one-shot-packet-all-reduce*16@256.lines"],
      [128 * KI + 1, "one-shot-packet-all-reduce*32@256.lines"],
      [512 * KI + 1, "two-phase-packet-all-reduce*128@256.lines"],
      // The shape that was best of kernels by hand: bench/results/cuda-links-4-gpus-2026-11-28.md.
      [2 * MI + 1, "two-phase-packet-all-reduce*128@288.sheets"],
    ],
    threads: [
      [6 * MI + 1, "two-phase-push-all-reduce*128@256"],
      [40 * MI + 1, "two-phase-push-all-reduce*128@512.u8"],
      [128 * MI + 1, "nccl"],
    ],
    processes: [
      [6 * MI + 1, "two-phase-packet-all-reduce*128@288.sheets", "two-phase-push-all-reduce*128@256"],
      [8 * MI + 1, "two-phase-packet-all-reduce*128@1024.sheets", "two-phase-push-all-reduce*128@256"],
      [32 * MI + 1, "nccl", "two-phase-push-all-reduce*128@256"],
      [40 * MI + 1, "nccl", "two-phase-push-all-reduce*128@512.u8"],
      [128 * MI + 1, "nccl"],
    ],
  },
  all_gather: {
    both: [
      [0, "packet-all-gather*2@256.lines"],
      [8 * KI + 1, "packet-all-gather*4@256.lines"],
      [32 * KI + 1, "packet-all-gather*32@256.lines"],
      [512 * KI + 1, "packet-all-gather*64@512.lines"],
      [2 * MI + 1, "packet-all-gather*128@512.sheets"],
    ],
    threads: [
      [6 * MI + 1, "one-pass-all-gather*128@256"],
      [40 * MI + 1, "streaming-all-gather*128@512"],
      [96 * MI + 1, "one-pass-all-gather*132@1024"],
    ],
    processes: [
      [6 * MI + 1, "packet-all-gather*128@512.sheets", "one-pass-all-gather*128@256"],
      [8 * MI + 1, "packet-all-gather*128@512.lines", "one-pass-all-gather*128@256"],
      [32 * MI + 1, "staged-all-gather*66@512.unit64K", "one-pass-all-gather*128@256"],
      [40 * MI + 1, "staged-all-gather*66@512.unit64K"],
      [96 * MI + 1, "staged-all-gather*66@512.unit64K", "one-pass-all-gather*132@1024"],
      [128 * MI + 1, "staged-all-gather*66@512.unit128K"],
      [256 * MI + 1, "nccl"],
    ],
  },
  reduce_scatter: {
    both: [
      [0, "packet-reduce-scatter*4@256.lines"],
      [32 * KI + 1, "packet-reduce-scatter*32@256.lines"],
      [512 * KI + 1, "packet-reduce-scatter*64@512.lines"],
      [2 * MI + 1, "packet-reduce-scatter*128@512.sheets"],
    ],
    threads: [
      [8 * MI + 1, "streaming-reduce-scatter*128@512.unit64K"],
      [24 * MI + 1, "read-reduce-scatter*64@256.u8"],
      [128 * MI + 1, "read-reduce-scatter*132@256.u8"],
    ],
    processes: [
      [8 * MI + 1, "packet-reduce-scatter*256@512.lines"],
      [24 * MI + 1, "packet-reduce-scatter*256@512.lines", "read-reduce-scatter*64@256.u8"],
      [32 * MI + 1, "streaming-reduce-scatter*100@512.unit64K", "read-reduce-scatter*64@256.u8"],
      [128 * MI + 1, "nccl"],
    ],
  },
  all_to_all: {
    both: [
      [0, "packet-all-to-all*2@256.lines"],
      [8 * KI + 1, "packet-all-to-all*16@256.lines"],
      [128 * KI + 1, "packet-all-to-all*32@256.lines"],
      [512 * KI + 1, "packet-all-to-all*64@512.lines"],
    ],
    threads: [[2 * MI + 1, "direct-all-to-all*44@512"]],
    processes: [
      [2 * MI + 1, "packet-all-to-all*128@512.lines"],
      [32 * MI + 1, "nccl"],
    ],
  },
  broadcast: {
    both: [
      [0, "packet-broadcast*4@256.lines"],
      [32 * KI + 1, "packet-broadcast*32@256.lines"],
      [128 * KI + 1, "packet-broadcast*64@512.lines"],
      [512 * KI + 1, "nccl"],
    ],
    threads: [],
    processes: [],
  },
  reduce: {
    both: [
      [0, "packet-reduce*4@256.lines"],
      [32 * KI + 1, "packet-reduce*32@256.lines"],
      [128 * KI + 1, "packet-reduce*64@512.lines"],
      [2 * MI + 1, "nccl"],
    ],
    threads: [],
    processes: [],
  },
  gather: {
    both: [
      [0, "packet-gather*4@256.lines"],
      [32 * KI + 1, "packet-gather*32@256.lines"],
      [512 * KI + 1, "packet-gather*128@512.lines"],
      [2 * MI + 1, "packet-gather*64@512.lines"],
      [8 * MI + 1, "staged-gather*66@512.unit64K"],
      [32 * MI + 1, "nccl"],
    ],
    threads: [],
    processes: [],
  },
  scatter: {
    both: [
      [0, "packet-scatter*4@256.lines"],
      [32 * KI + 1, "packet-scatter*32@256.lines"],
      [512 * KI + 1, "packet-scatter*64@512.lines"],
      [8 * MI + 1, "staged-scatter*66@512.unit64K"],
      [32 * MI + 1, "nccl"],
    ],
    threads: [],
    processes: [],
  },
};
