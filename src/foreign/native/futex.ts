/**
 * Sleeping on a word of memory that processes share, and waking who sleeps there: futex(2), on Linux. What V8 has for threads
 * (`Atomics.wait`) knows only the waiters of its own process.
 */
import { koffi } from "./koffi.ts";

/** The number of the system call, by processor. */
const SYSCALL: ReadonlyMap<string, number> = new Map([
  ["x64", 202],
  ["arm64", 98],
  ["riscv64", 98],
  ["loong64", 98],
]);
const FUTEX_WAIT = 0;
const FUTEX_WAKE = 1;

/** Addresses are of 32-bit words. A sleep may end early, and says nothing of why it ended. */
export interface FutexCalls {
  /** Blocks this thread for at most `ms`, unless the word is not `value`. */
  wait(address: number, value: number, ms: number): void;
  /** As `wait`, on a thread of Node's pool. The word must stay mapped, or the promise is resolved at once. */
  waitAsync(address: number, value: number, ms: number): Promise<void>;
  wake(address: number, count: number): void;
}

type Call = (number: number, address: number, op: number, value: number, timeout: BigInt64Array | null) => number;
type AsyncCall = (...args: [...Parameters<Call>, callback: (error: unknown) => void]) => void;

let bound: FutexCalls | undefined;

/** Binds the calls; `undefined` where the system has none. @throws UnavailableError without FFI */
export function futexCalls(): FutexCalls | undefined {
  const number = process.platform === "linux" ? SYSCALL.get(process.arch) : undefined;
  if (number === undefined) return undefined;
  if (bound !== undefined) return bound;
  const types = ["long", "intptr_t", "int", "int", "void *"];
  const call = koffi().load(null).func("syscall", "long", types) as Call & { readonly async: AsyncCall };
  const timeout = new BigInt64Array(2);
  bound = {
    wait(address, value, ms) {
      call(number, address, FUTEX_WAIT, value, timespec(timeout, ms));
    },
    waitAsync: (address, value, ms) =>
      new Promise((resolve) => {
        const own = timespec(new BigInt64Array(2), ms);
        // The array is named when the call is over: until then it must not be collected.
        call.async(number, address, FUTEX_WAIT, value, own, () => resolve(own.fill(0n) && undefined));
      }),
    wake(address, count) {
      call(number, address, FUTEX_WAKE, count, null);
    },
  };
  return bound;
}

function timespec(into: BigInt64Array, ms: number): BigInt64Array {
  const seconds = Math.floor(ms / 1000);
  into[0] = BigInt(seconds);
  into[1] = BigInt(Math.floor((ms - 1000 * seconds) * 1e6));
  return into;
}
