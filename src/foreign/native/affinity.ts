/** Which CPUs a process that is started may run on. Linux only. */
import { koffi } from "./koffi.ts";

/** As the C library's cpu_set_t has it: 1,024 CPUs. */
const SET_BYTES = 128;

type SetCall = (pid: number, bytes: number, set: Uint8Array) => number;

/**
 * Runs `fn` with this thread bound to some CPUs, and binds it as before afterwards: a process that `fn` starts inherits the
 * binding, all its threads included. Where that is not possible `fn` runs unbound.
 * @returns what `fn` gives, and whether it ran bound
 */
export function boundTo<T>(cpus: readonly number[], fn: () => T): { readonly value: T; readonly isBound: boolean } {
  const before = new Uint8Array(SET_BYTES);
  let set: SetCall | undefined;
  let isBound = false;
  if (process.platform === "linux") {
    try {
      const libc = koffi().load(null);
      const get = libc.func("int sched_getaffinity(int pid, size_t bytes, _Out_ uint8_t *set)") as SetCall;
      set = libc.func("int sched_setaffinity(int pid, size_t bytes, const uint8_t *set)") as SetCall;
      const wanted = new Uint8Array(SET_BYTES);
      for (const cpu of cpus) wanted[cpu >> 3] = (wanted[cpu >> 3] ?? 0) | (1 << (cpu & 7));
      isBound = get(0, SET_BYTES, before) >= 0 && set(0, SET_BYTES, wanted) === 0;
    } catch {
      // Without FFI there is no binding.
    }
  }
  try {
    return { value: fn(), isBound };
  } finally {
    if (isBound) set?.(0, SET_BYTES, before);
  }
}
