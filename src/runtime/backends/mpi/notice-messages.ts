/**
 * How ranks on several hosts know of each other's calls: each has control words of its own (runtime/memory), and what one
 * changes in a group with ranks of other hosts goes to the others as small messages of MPI, from the thread that calls MPI
 * anyway. Each rank is a host of its own here (runtime/progress/host-mirror.ts), so no rank waits for another to pass its news
 * on; calls go to the members of their group alone, and everything else to everybody. Messages are looked for whenever the
 * rank looks at its calls, and every few milliseconds otherwise.
 */
import { ControlSegment, controlBytes, NOTICE, noticeOf, type Span } from "../../memory/index.ts";
import { type MirrorMessage, NoticeMirror } from "../../progress/index.ts";
import { LAST_WORDS_MS, MOST_NOTICE_BYTES, type MpiProcess } from "./mpi-process.ts";

/** First words of a message: its kind, who sent it, and the bytes that follow. */
const HEAD_WORDS = 3;
const KIND = { notices: 0, other: 1 } as const;
/** Most words of notices in one message: MPI sends what is smaller at once, whether or not it is received yet. */
const MOST_WORDS = 768;

/** A message on its way. */
interface Sent {
  readonly request: number;
  /** Kept until it has left. */
  readonly words: Int32Array;
}

export class NoticeMessages {
  /** This rank's own words about groups that span hosts. */
  readonly segment: ControlSegment;
  readonly #mpi: MpiProcess;
  readonly #comm: number;
  readonly #tag: number;
  readonly #rank: number;
  /** All ranks of the world but this one. */
  readonly #others: readonly number[];
  readonly #mirror: NoticeMirror;
  readonly #room: Span;
  readonly #received: Int32Array;
  #sent: Sent[] = [];
  #isFetching = false;

  /** @param tag tells the messages of worlds apart that follow each other */
  constructor(mpi: MpiProcess, tag: number, world: { readonly ranks: number; readonly generation: number }) {
    const { ranks, generation } = world;
    this.#mpi = mpi;
    this.#comm = mpi.noticeComm;
    this.#tag = tag;
    this.#rank = mpi.rank;
    this.#others = Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => rank !== mpi.rank);
    this.#room = mpi.addresses.fresh(MOST_NOTICE_BYTES);
    this.#received = new Int32Array(this.#room.bytes.buffer);
    this.segment = new ControlSegment(new SharedArrayBuffer(controlBytes(ranks, true)), ranks, 0, true);
    this.segment.presence.enter(this.#rank, process.pid, 0);
    this.segment.tellHosts(this.#rank, new Set(this.#others), () => this.look());
    this.#mirror = new NoticeMirror({
      ...{ segment: this.segment, ranks, generation, isFirst: this.#rank === 0, here: [this.#rank] },
      send: (message) => this.#send(message as MirrorMessage),
      fetch: () => this.#fetch(),
    });
  }

  /** Takes what has come, sends what this rank has told, and does what is due. */
  look(): void {
    this.#mirror.look();
  }

  /** Sends this rank's last words, for which it waits a little, and looks at nothing any more. */
  close(): void {
    this.#mirror.close();
    const until = performance.now() + LAST_WORDS_MS;
    while (this.#sent.length > 0 && performance.now() < until) this.#sweep();
    // MPI may read what has not left for as long as the process lives.
    if (this.#sent.length > 0) this.#mpi.abandoned.push(this.#sent);
  }

  #send(message: MirrorMessage): void {
    if (message.kind === "notices") {
      for (const to of this.#others) this.#sendNotices(to, message.notices);
      return;
    }
    const bytes = Buffer.from(JSON.stringify(message));
    const words = new Int32Array(Math.ceil(bytes.length / 4));
    new Uint8Array(words.buffer).set(bytes);
    for (const to of this.#others) this.#post(to, KIND.other, words, bytes.length);
  }

  /** Sends a rank what concerns it: of groups without it, all but their calls. */
  #sendNotices(to: number, notices: readonly (readonly [rank: number, words: Int32Array])[]): void {
    let words: number[] = [];
    const post = () => {
      if (words.length > 0) this.#post(to, KIND.notices, Int32Array.from(words), 4 * words.length);
      words = [];
    };
    for (const [, one] of notices) {
      const { kind, key } = noticeOf(one);
      if (kind === NOTICE.publish && this.#mirror.ranksOf(key)?.includes(to) === false) continue;
      if (words.length + one.length > MOST_WORDS) post();
      words.push(...one);
    }
    post();
  }

  #post(to: number, kind: number, payload: Int32Array, sizeBytes: number): void {
    const { library, requests, addresses } = this.#mpi;
    const words = new Int32Array(new ArrayBuffer(4 * (HEAD_WORDS + payload.length)));
    words[0] = kind;
    words[1] = this.#rank;
    words[2] = sizeBytes;
    words.set(payload, HEAD_WORDS);
    const request = requests.take();
    const { byte } = library.handles;
    const at = addresses.of(words);
    const status = library.api.MPI_Isend(at, words.byteLength, byte, to, this.#tag, this.#comm, request);
    library.check("MPI_Isend", status);
    if (requests.done(request)) requests.give(request);
    else this.#sent.push({ request, words });
  }

  /** Forgets what has left. */
  #sweep(): void {
    const { requests } = this.#mpi;
    this.#sent = this.#sent.filter(({ request }) => {
      if (!requests.done(request)) return true;
      requests.give(request);
      return false;
    });
  }

  #fetch(): void {
    // What is received may be looked at while it is.
    if (this.#isFetching) return;
    this.#isFetching = true;
    try {
      if (this.#sent.length > 0) this.#sweep();
      this.#mpi.receiveAll(this.#tag, this.#comm, this.#room, () => this.#take());
    } finally {
      this.#isFetching = false;
    }
  }

  /** Takes the message that was received. */
  #take(): void {
    const [kind, sender = 0, sizeBytes = 0] = this.#received;
    if (kind === KIND.other) {
      const bytes = this.#room.bytes.subarray(4 * HEAD_WORDS, 4 * HEAD_WORDS + sizeBytes);
      this.#mirror.receive(JSON.parse(Buffer.from(bytes).toString()));
      return;
    }
    const notices: (readonly [number, Int32Array])[] = [];
    const end = HEAD_WORDS + sizeBytes / 4;
    for (let at = HEAD_WORDS; at < end; ) {
      const length = this.#received[at] ?? 0;
      notices.push([sender, this.#received.slice(at, at + length)]);
      at += Math.max(1, length);
    }
    this.#mirror.receive({ kind: "notices", notices } satisfies MirrorMessage);
  }
}
