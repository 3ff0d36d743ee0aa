/**
 * The control segment: shared memory in which the ranks of one host say what they have issued, so that a backend over a
 * foreign engine can tell a mismatch, a missing rank and a failure without asking the engine, at the cost of a few
 * stores a call. It carries no data of collectives. It is a SharedArrayBuffer among threads and a mapped file among
 * processes; nothing here waits with Atomics.wait, which mapped memory does not have.
 *
 * Its layout is in control-layout.ts; a group's part of it is in group-control.ts.
 */
import { createHash } from "node:crypto";
import { FormatError, invariant, OutOfMemoryError } from "../../core/index.ts";
import type { Failure } from "../comm/index.ts";
import { ATTENDS, Attendance } from "./attendance.ts";
import {
  GROUP,
  LABEL_BYTES,
  Layout,
  LOCK_AT,
  MAGIC_AT,
  MAX_GROUPS,
  SET,
  TURNS_AT,
  WORLD_FAILURE_AT,
} from "./control-layout.ts";
import { FailurePlace } from "./failure-place.ts";
import { GroupControl } from "./group-control.ts";
import { JointTurn } from "./joint-turn.ts";
import { decodeLabel, encodeLabel } from "./label.ts";
import { Lock } from "./lock.ts";
import { type GroupKey, GroupOutbox, NOTICE, Outbox, readOutbox, wordsOf } from "./outbox.ts";
import { Presence } from "./presence.ts";

const MAGIC = 0x63686f72;
/** Characters of a group's name that other hosts are told for messages. */
const MAX_TITLE = 512;

/** A key of a group: 64 bits of a hash, the first word never zero. */
function groupKey(text: string): GroupKey {
  const hash = createHash("sha256").update(text).digest();
  return [hash.readInt32LE(0) | 1, hash.readInt32LE(4)];
}

/** The segment, as one rank uses it. */
export class ControlSegment {
  readonly presence: Presence;
  readonly #layout: Layout;
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #lock: Lock;
  readonly #failure: FailurePlace;
  /** In a world of several hosts, once a rank uses it: what it tells the others, and which ranks those are. */
  #across: { readonly outbox: Outbox; readonly remote: ReadonlySet<number> } | undefined;

  /** @param buffer of `controlBytes(worldSize, spansHosts)` zeros from `byteOffset`, or one that another rank has opened */
  constructor(buffer: ArrayBufferLike, worldSize: number, byteOffset = 0, spansHosts = false) {
    this.#layout = new Layout(worldSize, spansHosts);
    const { sizeBytes } = this.#layout;
    invariant(buffer.byteLength >= byteOffset + sizeBytes, "the control segment is too small");
    this.#words = new Int32Array(buffer as ArrayBuffer, byteOffset, sizeBytes / 4);
    this.#bytes = new Uint8Array(buffer as ArrayBuffer, byteOffset, sizeBytes);
    this.#lock = new Lock(this.#words, LOCK_AT);
    this.#failure = new FailurePlace(this.#words, this.#bytes, this.#lock, WORLD_FAILURE_AT);
    this.presence = new Presence(this.#words, this.#layout.presenceAt, worldSize);
    Atomics.compareExchange(this.#words, MAGIC_AT, 0, MAGIC);
    invariant(Atomics.load(this.#words, MAGIC_AT) === MAGIC, "the memory is no control segment");
  }

  /**
   * Says that ranks of this world are on other hosts, which are told from now on what `rank` does in groups with them.
   * The segment was made for several hosts; call it before any group is opened.
   * @param look passes on what is told, and takes what others tell, where this thread does that itself
   */
  tellHosts(rank: number, remote: ReadonlySet<number>, look: () => void = () => {}): void {
    const outbox = new Outbox(this.#words, this.#layout.outbox(rank), () => this.failed, look);
    this.#across = { outbox, remote };
  }

  /** Reads what `rank` has told since the last time, in order. One reader alone does. */
  readOutbox(rank: number, take: (words: Int32Array) => void): void {
    readOutbox(this.#words, this.#layout.outbox(rank), take);
  }

  /** Who attends, as `rank` sees it. */
  attendance(rank: number): Attendance {
    return new Attendance(this.#words, rank);
  }

  /** The joint turns of this world, as `rank` takes them. */
  jointTurn(rank: number): JointTurn {
    const { jointAt: at, worldSize: numRanks } = this.#layout;
    return new JointTurn(this.#words, rank, {
      at,
      numRanks,
      takenAt: TURNS_AT,
      mark: MAX_GROUPS + 1,
      free: ATTENDS,
      isOver: () => this.failed,
    });
  }

  /** The world's failure, once there is one. */
  get failure(): Failure | undefined {
    return this.#failure.failure;
  }

  /** Ends the world. The first failure stays. @returns whether this one was the first */
  fail(failure: Failure): boolean {
    return this.#failure.set(failure);
  }

  /** Says cheaply whether the world has failed. */
  get failed(): boolean {
    return this.#failure.isSet;
  }

  /**
   * Runs `fn` when the world fails, also in a thread that has nothing to do; once. Among threads only: mapped memory
   * cannot be waited for. Does not keep the event loop alive.
   * @returns ends the watch
   */
  onFailure(fn: () => void): () => void {
    const words = this.#words;
    let ended = !(words.buffer instanceof SharedArrayBuffer);
    const watch = (): void => {
      if (ended) return;
      const state = Atomics.load(words, WORLD_FAILURE_AT);
      if (state === SET) {
        ended = true;
        fn();
        return;
      }
      const wait = Atomics.waitAsync(words, WORLD_FAILURE_AT, state);
      if (wait.async) void wait.value.then(watch);
      else setImmediate(watch);
    };
    watch();
    return () => {
      if (ended) return;
      ended = true;
      // Wakes this watch, which would wait forever; other watches look again and go on waiting.
      Atomics.notify(words, WORLD_FAILURE_AT);
    };
  }

  /**
   * Opens the group of a name and members; every member opens it with the same text.
   * @param instance tells groups of one name apart over time: each opening of it has the next number
   * @param within the scope of the name: the `key` of the group that this one comes from, or another word
   * @param title how other hosts call it in messages
   * @throws OutOfMemoryError when too many groups are open
   */
  group(
    name: string,
    ranks: readonly number[],
    instance: number,
    member: number,
    within = "",
    title = name,
  ): GroupControl {
    const key = groupKey(`${within}>${name}|${ranks.join(",")}|${instance}`);
    const labelOf = () => encodeLabel({ name, ranks }, LABEL_BYTES);
    const at = this.#place(key, labelOf);
    const { outbox, remote } = this.#across ?? {};
    if (outbox === undefined || !ranks.some((rank) => remote?.has(rank)))
      return this.#groupAt(at, member, ranks.length);
    outbox.tell(NOTICE.open, key, wordsOf(labelOf()));
    if (title !== name) outbox.tell(NOTICE.title, key, wordsOf(Buffer.from(title.slice(0, MAX_TITLE))));
    return this.#groupAt(at, member, ranks.length, new GroupOutbox(outbox, key));
  }

  /**
   * Opens a group for a member on another host.
   * @param label as that member wrote it
   * @throws OutOfMemoryError when too many groups are open; FormatError for a label that cannot be read
   */
  openRemote(
    key: GroupKey,
    label: Uint8Array,
  ): { readonly name: string; readonly ranks: readonly number[]; controlOf(member: number): GroupControl } {
    const read = decodeLabel(label);
    if (read === undefined || label.length > LABEL_BYTES) throw new FormatError("a group's label", "cannot be read");
    const at = this.#place(key, () => label);
    return { ...read, controlOf: (member) => this.#groupAt(at, member, read.ranks.length) };
  }

  /** The place of a group; a free one for a group that nobody here has opened. @throws OutOfMemoryError */
  #place([low, high]: GroupKey, labelOf: () => Uint8Array): number {
    return this.#lock.run(() => {
      const slots = this.#layout.groups;
      const words = this.#words;
      const known = slots.find((slot) => words[slot] === low && words[slot + 1] === high);
      if (known !== undefined) return known;
      const free = slots.find((slot) => words[slot] === 0);
      if (free === undefined) {
        throw new OutOfMemoryError("control segment", 1, 0, `${MAX_GROUPS} groups are open: close communicators.`);
      }
      const label = labelOf();
      invariant(label.length <= LABEL_BYTES, "the label is too large");
      this.#bytes.set(label, 4 * (free + GROUP.label));
      words[free + GROUP.labelLength] = label.length;
      words[free] = low;
      words[free + 1] = high;
      return free;
    });
  }

  /** How many groups are open or not yet freed; at most `MAX_GROUPS`. */
  get numGroups(): number {
    return this.#layout.groups.filter((at) => this.#words[at] !== 0).length;
  }

  /** The groups that are open now, each as its member 0 sees it. */
  groups(): readonly { readonly name: string; readonly ranks: readonly number[]; readonly control: GroupControl }[] {
    // Under the lock: groups come and go.
    const labels = this.#lock.run(() =>
      this.#layout.groups.flatMap((at) => {
        const length = this.#words[at + GROUP.labelLength] ?? 0;
        if (this.#words[at] === 0 || length === 0) return [];
        const start = 4 * (at + GROUP.label);
        return { at, bytes: this.#bytes.slice(start, start + length) };
      }),
    );
    return labels.flatMap(({ at, bytes }) => {
      const label = decodeLabel(bytes);
      if (label === undefined) return [];
      return { ...label, control: this.#groupAt(at, 0, label.ranks.length) };
    });
  }

  #groupAt(at: number, member: number, size: number, across?: GroupOutbox): GroupControl {
    const segment = {
      layout: this.#layout,
      words: this.#words,
      bytes: this.#bytes,
      lock: this.#lock,
      world: this.#failure,
    };
    return new GroupControl(segment, at, member, size, across);
  }
}
