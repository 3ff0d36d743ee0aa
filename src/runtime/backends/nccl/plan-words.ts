/** What members of a group tell each other as they open a plan, by way of NCCL: their memory need not be reachable yet. */

import type { NcclLibrary } from "../../../foreign/nccl/index.ts";
import { errorOf } from "../../comm/index.ts";
import type { RankDevice } from "../../device/index.ts";
import { type CallTarget, issue, type NcclCall } from "./nccl-calls.ts";
import type { CommQueue } from "./queue.ts";

const ALL_GATHER = {
  op: "all_gather",
  dtype: "i32",
  root: 0,
  redop: 0,
  counts: [],
  sendCounts: [],
  recvCounts: [],
} as const satisfies Partial<NcclCall>;

interface WordsOfMember {
  readonly rank: { readonly library: NcclLibrary; readonly at: RankDevice };
  readonly queue: CommQueue;
  readonly member: number;
  readonly size: number;
  readonly target: CallTarget;
}

/** Tells all members the words of each. Blocks until all have come. @throws the group's failure */
export function tellAll(
  words: Int32Array,
  { rank, queue, member, size, target }: WordsOfMember,
): readonly Int32Array[] {
  const { at } = rank;
  const { stream, control } = queue.options;
  const { byteLength } = words;
  const device = at.pool.allocate(byteLength * size, stream, "words of a plan");
  const pinned = at.pinned.take(byteLength * size);
  let isDone = false;
  try {
    new Int32Array(pinned.buffer, member * byteLength, words.length).set(words);
    const [base, own] = [Number(device.address), member * byteLength];
    const from = pinned.address + BigInt(own);
    at.device.call("cuMemcpyHtoDAsync_v2", "words of a plan", base + own, from, byteLength, stream.handle);
    const call: NcclCall = { ...ALL_GATHER, count: words.length, send: base + own, recv: base };
    rank.library.check("opening of a plan", issue(call, target), target.comm);
    queue.handle.untilAccepted();
    const { address } = device;
    at.device.call(
      "cuMemcpyDtoHAsync_v2",
      "words of a plan",
      pinned.address,
      address,
      byteLength * size,
      stream.handle,
    );
    const failure = () => (control.failure === undefined ? undefined : errorOf(control.failure));
    at.device.waiting?.until(() => stream.isDone("opening of a plan"), "opening of a plan", { failure });
    isDone = true;
    queue.stillOpen();
    return Array.from({ length: size }, (_, other) =>
      new Int32Array(pinned.buffer, other * byteLength, words.length).slice(),
    );
  } finally {
    at.pool.free(device);
    // What is still to be copied there would overwrite what somebody else has it for.
    if (isDone) at.pinned.giveBack(pinned);
  }
}
