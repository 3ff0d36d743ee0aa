/** Which CPUs a process that is started may run on, and where this thread runs. Linux only. */
import { koffi } from "./koffi.ts";

/** As the C library's cpu_set_t has it: 1,024 CPUs. */
const SET_BYTES = 128;

interface Calls {
  readonly get: (pid: number, bytes: number, set: Uint8Array) => number;
  readonly set: (pid: number, bytes: number, set: Uint8Array) => number;
  readonly cpu: () => number;
}

let calls: Calls | undefined;

/** Binds the calls, of which 0 as `pid` means this thread. @throws UnavailableError without FFI, Error without such calls */
function affinityCalls(): Calls {
  if (calls !== undefined) return calls;
  const libc = koffi().load(null);
  calls = {
    get: libc.func("int sched_getaffinity(int pid, size_t bytes, _Out_ uint8_t *set)") as Calls["get"],
    set: libc.func("int sched_setaffinity(int pid, size_t bytes, const uint8_t *set)") as Calls["set"],
    cpu: libc.func("int sched_getcpu()") as Calls["cpu"],
  };
  return calls;
}

function setOf(cpus: readonly number[]): Uint8Array {
  const set = new Uint8Array(SET_BYTES);
  for (const cpu of cpus) set[cpu >> 3] = (set[cpu >> 3] ?? 0) | (1 << (cpu & 7));
  return set;
}

/**
 * Runs `fn` with this thread bound to some CPUs, and binds it as before afterwards: a process that `fn` starts inherits the
 * binding, all its threads included. Where that is not possible `fn` runs unbound.
 * @returns what `fn` gives, and whether it ran bound
 */
export function boundTo<T>(cpus: readonly number[], fn: () => T): { readonly value: T; readonly isBound: boolean } {
  const before = new Uint8Array(SET_BYTES);
  let isBound = false;
  if (process.platform === "linux") {
    try {
      const { get, set } = affinityCalls();
      isBound = get(0, SET_BYTES, before) >= 0 && set(0, SET_BYTES, setOf(cpus)) === 0;
    } catch {
      // Without FFI there is no binding.
    }
  }
  try {
    return { value: fn(), isBound };
  } finally {
    if (isBound) calls?.set(0, SET_BYTES, before);
  }
}

/** Where this thread runs. */
export interface ThreadPlace {
  /** The CPU on which it runs now; negative where the system does not say. */
  current(): number;
  /** The CPUs on which it may run. */
  allowed(): readonly number[];
  /** Moves it to a CPU. It may run on the same ones as before: the system moves it away again when it sees fit. */
  moveTo(cpu: number): void;
}

/** @returns undefined where threads cannot be moved: not on Linux, or without FFI */
export function threadPlace(): ThreadPlace | undefined {
  if (process.platform !== "linux") return undefined;
  try {
    const { get, set, cpu } = affinityCalls();
    const mask = new Uint8Array(SET_BYTES);
    return {
      current: () => cpu(),
      allowed: () => {
        if (get(0, SET_BYTES, mask) < 0) return [];
        return Array.from({ length: 8 * SET_BYTES }, (_, i) => i).filter((i) => ((mask[i >> 3] ?? 0) >> (i & 7)) & 1);
      },
      moveTo: (target) => {
        if (get(0, SET_BYTES, mask) >= 0 && set(0, SET_BYTES, setOf([target])) === 0) set(0, SET_BYTES, mask);
      },
    };
  } catch {
    return undefined;
  }
}
