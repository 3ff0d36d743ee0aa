/** Asks the CUDA driver, NCCL and NVRTC what they are, and prints that as one JSON document. Started by gpu-facts.ts. */
import { closeSync, openSync, readFileSync, readSync, statfsSync } from "node:fs";
import { loadNccl, NCCL_OPTIONAL } from "../../runtime/backends/nccl/index.ts";
import { type CudaDriver, loadCudaDriver, loadNvrtc } from "../../runtime/device/index.ts";
import type { GpuFacts } from "./gpu-facts.ts";

const PIECE_BYTES = 4 * 1024 * 1024;
/** libnccl is 100 to 500 MB. */
const MAX_SCAN_BYTES = 1024 * 1024 * 1024;
/** Bytes kept of a piece, for a text that lies across two. */
const OVERLAP = 64;

/**
 * The CUDA version that an NCCL library was built for. NCCL has no call that tells it; the text that it prints with
 * NCCL_DEBUG=VERSION is in the file: `NCCL version 2.28.3+cuda13.0`.
 */
export function builtForCuda(path: string): string | undefined {
  const needle = Buffer.from("NCCL version 2.");
  let file: number | undefined;
  try {
    file = openSync(path, "r");
    const piece = Buffer.alloc(PIECE_BYTES + OVERLAP);
    let kept = 0;
    for (let at = 0; at < MAX_SCAN_BYTES; ) {
      const read = readSync(file, piece, kept, PIECE_BYTES, at);
      if (read === 0) return undefined;
      at += read;
      const seen = piece.subarray(0, kept + read);
      for (let i = seen.indexOf(needle); i >= 0 && i + OVERLAP <= seen.length; i = seen.indexOf(needle, i + 1)) {
        const found = /^NCCL version [\w.]+\+cuda(\d+\.\d+)/.exec(seen.toString("latin1", i, i + OVERLAP));
        if (found?.[1] !== undefined) return found[1];
      }
      kept = Math.min(OVERLAP, seen.length);
      piece.copy(piece, 0, seen.length - kept, seen.length);
    }
  } catch {
    // A library that the loader found by name alone has no path to read.
  } finally {
    if (file !== undefined) closeSync(file);
  }
  return undefined;
}

function peers(driver: CudaDriver): [number, number][] {
  const out = new Int32Array(1);
  const none: [number, number][] = [];
  for (let a = 0; a < driver.numDevices; a++) {
    for (let b = 0; b < driver.numDevices; b++) {
      if (a !== b && driver.api.cuDeviceCanAccessPeer(out, a, b) === 0 && out[0] === 0) none.push([a, b]);
    }
  }
  return none;
}

function names(driver: CudaDriver): string[] {
  return Array.from({ length: driver.numDevices }, (_, ordinal) => {
    const name = new Uint8Array(256);
    const status = driver.api.cuDeviceGetName(name, name.length, ordinal);
    return status === 0 ? Buffer.from(name.subarray(0, name.indexOf(0))).toString("latin1") : "unknown";
  });
}

/** The file behind a library that was opened by name: the kernel lists what is mapped. */
function mapped(name: string): string | undefined {
  try {
    return readFileSync("/proc/self/maps", "utf8")
      .split("\n")
      .map((line) => /\s(\/.*)$/.exec(line)?.[1] ?? "")
      .find((path) => path.split("/").at(-1)?.startsWith(name) === true);
  } catch {
    return undefined;
  }
}

function cuda(): NonNullable<GpuFacts["cuda"]> {
  const driver = loadCudaDriver();
  if (!("available" in driver)) {
    return {
      version: driver.version.join("."),
      path: mapped("libcuda.so") ?? driver.library.path,
      numDevices: driver.numDevices,
      names: names(driver),
      noPeerAccess: peers(driver),
    };
  }
  const { why, cause } = driver;
  return { problem: why, ...(cause?.symbol === "cuInit" ? { initStatus: cause.status } : {}) };
}

function nccl(): NonNullable<GpuFacts["nccl"]> {
  let found: ReturnType<typeof loadNccl>;
  try {
    found = loadNccl();
  } catch (error) {
    return { problem: error instanceof Error ? error.message : String(error) };
  }
  if ("available" in found) return { problem: found.why };
  const library = found;
  const path = mapped("libnccl") ?? library.path;
  const built = builtForCuda(path);
  return {
    version: library.version,
    path,
    ...(built === undefined ? {} : { builtForCuda: built }),
    missing: Object.entries(NCCL_OPTIONAL).flatMap(([symbol, { since }]) =>
      library.optional[symbol as keyof typeof NCCL_OPTIONAL] === undefined ? [{ symbol, since }] : [],
    ),
  };
}

function nvrtc(): Pick<GpuFacts, "nvrtc"> {
  const found = loadNvrtc();
  return "available" in found ? {} : { nvrtc: { version: found.version.join(".") } };
}

function shm(): Pick<GpuFacts, "shm"> {
  try {
    const { bsize, blocks, bavail } = statfsSync("/dev/shm");
    return { shm: { totalBytes: bsize * blocks, freeBytes: bsize * bavail } };
  } catch {
    return {};
  }
}

if (process.argv[1]?.includes("gpu-facts-probe") === true) {
  const facts: GpuFacts = { cuda: cuda(), nccl: nccl(), ...nvrtc(), ...shm() };
  process.stdout.write(JSON.stringify(facts));
}
