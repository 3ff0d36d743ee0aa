/** Builds test/fixtures/native/fake-gpu.cpp once, and points the CUDA and NCCL loaders of this process at it. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import koffi from "koffi";

const source = fileURLToPath(new URL("../fixtures/native/fake-gpu.cpp", import.meta.url));
const processes = fileURLToPath(new URL("../fixtures/native/fake-gpu-processes.hpp", import.meta.url));
const kernels = fileURLToPath(new URL("../fixtures/native/fake-gpu-kernels.hpp", import.meta.url));
const hostCuda = fileURLToPath(new URL("../support/host-cuda", import.meta.url));
const folder = fileURLToPath(new URL("../../.cache/native", import.meta.url));

/** What a release of NCCL does not have: these symbols are left out of the library. */
const WITHOUT = {
  old: ["ncclAlltoAll", "ncclGather", "ncclScatter", "ncclCommRevoke"],
  usual: ["ncclCommRevoke"],
  new: [],
} as const;

export interface FakeGpuVariant {
  readonly nccl?: keyof typeof WITHOUT;
  /** A source with kernels of its own, beside those of plans. */
  readonly kernels?: string;
}

/**
 * Compiles the stand-in (a few seconds, cached by content). Releases of NCCL differ in what is linked only.
 * @returns its path, or `undefined` when there is no C++ compiler
 */
export function buildFakeGpu({ nccl = "usual", kernels: own }: FakeGpuVariant = {}): string | undefined {
  mkdirSync(folder, { recursive: true });
  const hash = createHash("sha256");
  const shims = ["shim.hpp", "stepped.hpp"].map((file) => join(hostCuda, file));
  for (const file of [source, processes, kernels, ...shims]) hash.update(readFileSync(file));
  const name = `${folder}/fake-gpu-${hash.digest("hex").slice(0, 16)}`;
  const flags = ["-std=c++17", "-fPIC", `-DHOST_CUDA="${hostCuda}"`, `-DHOST_KERNELS="${name}"`];
  const objectOf = (name: string, from: string) =>
    made(`${name}.o`, (target) => ["-c", "-O1", ...flags, "-o", target, from]);
  const objects = [objectOf(name, source), ...(own === undefined ? [] : [objectOf(own, own)])];
  if (!objects.every((one) => one !== undefined)) return undefined;
  const library = own === undefined ? name : `${name}-${basename(own)}`;
  return made(`${library}-${nccl}.so`, (target) => {
    const script = `${target}.map`;
    writeFileSync(script, `{ local: ${["nothing", ...WITHOUT[nccl]].join("; ")}; };`);
    return ["-shared", "-o", target, ...objects, `-Wl,--version-script=${script}`, "-lpthread", "-ldl"];
  });
}

/** A file that g++ makes: by one process, for which others wait. */
function made(target: string, argsFor: (temporary: string) => readonly string[]): string | undefined {
  const lock = `${target}.lock`;
  while (!existsSync(target)) {
    try {
      writeFileSync(lock, String(process.pid), { flag: "wx" });
    } catch {
      if (!isHeld(lock)) rmSync(lock, { force: true });
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 50);
      continue;
    }
    try {
      const temporary = `${target}.${process.pid}`;
      const { status, error, stderr } = spawnSync("g++", argsFor(temporary));
      if (error !== undefined) return undefined;
      if (status !== 0) throw new Error(`the fake GPU library does not compile:\n${stderr.toString()}`);
      renameSync(temporary, target);
    } finally {
      rmSync(lock, { force: true });
    }
  }
  return target;
}

/** Whether the process that wrote the lock lives. One that is just being written holds no number yet. */
function isHeld(lock: string): boolean {
  try {
    const pid = readFileSync(lock, "utf8");
    return pid === "" || process.kill(Number(pid), 0);
  } catch {
    return false;
  }
}

/** Makes the folder by which processes share one set of stand-in devices (`FAKE_GPU_FOLDER`). */
export function fakeGpuFolder(): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "fake-gpu-"));
  return { path, remove: () => rmSync(path, { recursive: true, force: true }) };
}

/** Builds the stand-in and makes this process (and the workers it starts later) use it. */
export function useFakeGpu(): boolean {
  const path = buildFakeGpu();
  if (path === undefined) return false;
  process.env["CHORALE_CUDA_LIBRARY"] = path;
  process.env["CHORALE_NCCL_LIBRARY"] = path;
  return true;
}

/** What callers of the stand-in hold in this process, and how often they did what no caller may do. */
export interface HeldByFakeGpu {
  readonly contexts: number;
  readonly streams: number;
  readonly events: number;
  readonly graphs: number;
  readonly modules: number;
  readonly pinned: number;
  readonly memory: number;
  readonly communicators: number;
  readonly registrations: number;
  readonly violations: number;
  /** How often a communicator was revoked. */
  readonly revoked: number;
  /** Of memory by handles: handles that were retained, and address ranges. */
  readonly handles: number;
  readonly addresses: number;
  /** Graphs that executable ones are made of. */
  readonly templates: number;
}

/** Nothing held, nothing broken. */
export const NOTHING_HELD: HeldByFakeGpu = {
  contexts: 0,
  streams: 0,
  events: 0,
  graphs: 0,
  modules: 0,
  pinned: 0,
  memory: 0,
  communicators: 0,
  registrations: 0,
  violations: 0,
  revoked: 0,
  handles: 0,
  addresses: 0,
  templates: 0,
};

/** Reads the stand-in's counters in this process, whose threads share them. */
export function heldByFakeGpu(library: string): HeldByFakeGpu {
  const out = new BigInt64Array(16);
  koffi.load(library).func("int fakeGpuHeld(void *out)")(out);
  return Object.fromEntries(
    Object.keys(NOTHING_HELD).map((name, i) => [name, Number(out[i])]),
  ) as unknown as HeldByFakeGpu;
}
