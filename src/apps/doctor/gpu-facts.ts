/**
 * What the CUDA driver, NCCL and NVRTC say of themselves on this machine, as plain data: `chorale doctor --json` prints it
 * as `facts`, and a recorded root holds it as `engines.json`. The libraries are asked in a process of their own, which
 * may crash or hang with them; no context is made and no device memory is taken.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import type { Machine } from "../../machine/hardware/index.ts";
import { loadableUrl } from "../../runtime/world/index.ts";

const count = z.number().int().nonnegative();

export const gpuFactsSchema = z.object({
  cuda: z
    .object({
      /** Newest CUDA that the driver runs, `12.4`. */
      version: z.string().optional(),
      path: z.string().optional(),
      /** cuInit's status when it is not 0, and what the driver says of it. */
      initStatus: count.optional(),
      problem: z.string().max(2000).optional(),
      numDevices: count.optional(),
      names: z.array(z.string()).max(64).optional(),
      /** Ordered pairs of ordinals that cannot reach each other's memory. */
      noPeerAccess: z
        .array(z.tuple([count, count]))
        .max(4096)
        .optional(),
    })
    .optional(),
  nccl: z
    .object({
      version: z.string().optional(),
      path: z.string().optional(),
      /** CUDA that it was built for, `13.0`. */
      builtForCuda: z.string().optional(),
      missing: z
        .array(z.object({ symbol: z.string(), since: z.string() }))
        .max(64)
        .optional(),
      problem: z.string().max(2000).optional(),
    })
    .optional(),
  nvrtc: z.object({ version: z.string() }).optional(),
  /** The file system of /dev/shm. */
  shm: z.object({ totalBytes: count, freeBytes: count }).optional(),
});
export type GpuFacts = z.infer<typeof gpuFactsSchema>;

/** The libraries' own start takes a second or two; without persistence mode much longer. */
const LIMIT_MS = 30_000;
const MAX_OUTPUT_BYTES = 1024 * 1024;

/** Reads the facts of a recorded root, or asks this machine's libraries. Never throws: what is unknown is absent. */
export async function readGpuFacts(machine: Machine, options: { readonly exec: boolean }): Promise<GpuFacts> {
  const text = machine.recorded
    ? await machine.files.readText("/engines.json")
    : options.exec && machine.platform === "linux"
      ? await ask()
      : undefined;
  if (text === undefined) return {};
  try {
    const parsed = gpuFactsSchema.safeParse(JSON.parse(text));
    return parsed.success ? parsed.data : {};
  } catch {
    return {};
  }
}

function ask(): Promise<string | undefined> {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [fileURLToPath(loadableUrl("apps/doctor/gpu-facts-probe"))], {
      stdio: ["ignore", "pipe", "ignore"],
      timeout: LIMIT_MS,
      killSignal: "SIGKILL",
    });
    let text = "";
    child.stdout.setEncoding("utf8").on("data", (piece: string) => {
      if (text.length < MAX_OUTPUT_BYTES) text += piece;
    });
    child.on("error", () => resolve(undefined));
    child.on("close", () => resolve(text === "" ? undefined : text));
  });
}
