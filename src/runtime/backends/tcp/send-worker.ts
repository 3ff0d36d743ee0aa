/** The thread that writes large payloads for a rank, and makes some of its reductions, so that the rank does the rest meanwhile; see send-thread.ts. */
import { parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { POLL_IN, POLL_OUT, type SocketCalls, socketCalls, WOULD_BLOCK } from "../../../foreign/native/index.ts";
import { reduceOn, type WasmFunction } from "../../executor/internal.ts";
import { type MemoryNote, OWNER, RING, type SendWorkerData, SLOT, slotAt, THREAD, WORD } from "./send-slots.ts";
import { makeBlock } from "./shared-reductions.ts";

/** How long it looks again and again for something to do before it sleeps, ms: to be woken takes as long. */
const SPIN_MS = 0.05;
/** How long it blocks at a time, ms. */
const BLOCK_MS = 100;

const {
  slots: { words, addresses, numSlots },
  firstSlot,
  wakeFd,
  reductions,
} = workerData as SendWorkerData;
/** Bound once it is sure that the thread is to begin: a process that ends while a library is being loaded is aborted. */
let calls: SocketCalls;
const table = new Int32Array(2 * (numSlots + 1));
const byte = new Uint8Array(1);
const bytes = new Uint8Array(64);

const isAsked = (asked: number) => Atomics.load(words, WORD.asked) !== asked;
const ends = () => Atomics.load(words, WORD.state) === THREAD.ends;

/** Says that pieces were written, and wakes the program's thread if it blocks. */
function tellWritten(): void {
  Atomics.add(words, WORD.written, 1);
  if (Atomics.exchange(words, WORD.waits, 0) === 1) calls.send(wakeFd, byte, false);
}

/**
 * So much is written of a slot's pieces before the next one has its turn: what the ranks need first reaches all of them before what
 * they need later reaches any.
 */
const TURN_BYTES = 256 * 1024;
/** Pieces up to this size leave whole: four hosts of two ranks took longer without (tcp-must-show-2026-11-29.md in bench/results/). */
const WHOLE_BYTES = 512 * 1024;

/** Writes what the kernel takes of a slot's pieces. @returns whether it has no more, waits for the kernel, or has had its turn */
function write(slot: number): "none" | "waits" | "more" {
  const at = slotAt(slot);
  for (let turnBytes = 0; ; ) {
    if (Atomics.load(words, at + SLOT.state) !== OWNER.thread) {
      if (Atomics.compareExchange(words, at + SLOT.state, OWNER.asked, OWNER.program) === OWNER.asked) {
        Atomics.notify(words, at + SLOT.state);
      }
      return "none";
    }
    const written = words[at + SLOT.written] as number;
    if (written === Atomics.load(words, at + SLOT.given) || words[at + SLOT.error] !== 0) return "none";
    if (turnBytes >= TURN_BYTES) return "more";
    const piece = written & (RING - 1);
    const lengthAndMore = words[at + SLOT.pieces + piece] as number;
    const [length, more] = [lengthAndMore >>> 1, (lengthAndMore & 1) === 1];
    const done = words[at + SLOT.sent] as number;
    const address = (addresses[slot * RING + piece] as number) + done;
    const most = length > WHOLE_BYTES ? TURN_BYTES : length;
    const sent = calls.sendAt(words[at + SLOT.fd] as number, address, Math.min(length - done, most), more);
    if (sent === WOULD_BLOCK) return "waits";
    if (sent < 0) {
      Atomics.store(words, at + SLOT.error, sent);
      tellWritten();
      return "none";
    }
    turnBytes += sent;
    if (done + sent < length) {
      words[at + SLOT.sent] = done + sent;
      continue;
    }
    words[at + SLOT.sent] = 0;
    Atomics.store(words, at + SLOT.written, written + 1);
    tellWritten();
  }
}

/** The kernels on each memory that the rank has named. */
const kernels = new Map<number, WasmFunction>();
let knownMemories = 0;

function learnMemories(): void {
  const told = Atomics.load(words, WORD.memories);
  // A message may come after the word that counts it.
  while (knownMemories !== told && parentPort !== null) {
    const note = (receiveMessageOnPort(parentPort) as { message: MemoryNote } | undefined)?.message;
    if (note === undefined) continue;
    knownMemories++;
    if (note.memory === undefined) kernels.delete(note.number);
    else kernels.set(note.number, reduceOn(note.memory));
  }
}

function kernelsOf(memory: number): WasmFunction {
  if (!kernels.has(memory)) learnMemories();
  return kernels.get(memory) as WasmFunction;
}

/** Makes a block of what the rank has to reduce. @returns whether there was one */
function reduce(): boolean {
  Atomics.store(words, WORD.reduces, 1);
  const which = makeBlock(reductions, kernelsOf);
  Atomics.store(words, WORD.reduces, 0);
  if (which === "last") tellWritten();
  return which !== "none";
}

function sleep(asked: number): void {
  const until = performance.now() + SPIN_MS;
  while (performance.now() < until) if (isAsked(asked)) return;
  Atomics.wait(words, WORD.asked, asked);
}

function block(asked: number, count: number): void {
  table[2 * count] = wakeFd;
  table[2 * count + 1] = POLL_IN;
  Atomics.store(words, WORD.polls, 1);
  if (!isAsked(asked)) calls.poll(table, count + 1, BLOCK_MS);
  Atomics.store(words, WORD.polls, 0);
  if ((table[2 * count + 1] as number) >>> 16 !== 0) calls.receive(wakeFd, bytes);
}

function run(): void {
  while (!ends()) {
    const asked = Atomics.load(words, WORD.asked);
    let count = 0;
    let hasMore = false;
    for (let nth = 0; nth < numSlots; nth++) {
      const slot = (firstSlot + nth) % numSlots;
      const state = write(slot);
      if (state === "more") hasMore = true;
      if (state !== "waits") continue;
      table[2 * count] = words[slotAt(slot) + SLOT.fd] as number;
      table[2 * count + 1] = POLL_OUT;
      count++;
    }
    if (hasMore || reduce() || isAsked(asked) || ends()) continue;
    if (count === 0) sleep(asked);
    else block(asked, count);
  }
}

if (Atomics.compareExchange(words, WORD.state, THREAD.starts, THREAD.runs) === THREAD.starts) {
  let end: number = THREAD.failed;
  try {
    calls = socketCalls();
    run();
    end = THREAD.ended;
  } finally {
    Atomics.store(words, WORD.state, end);
    Atomics.notify(words, WORD.state);
    tellWritten();
  }
}
