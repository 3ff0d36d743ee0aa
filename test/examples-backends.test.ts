/**
 * Every example of examples/ that runs ranks does so on every backend, by its own command line: on nccl over the stand-in
 * library, whose kernels are those of the example that has some. On threads its own main.test.ts runs it. A new example is
 * listed here, or this fails.
 */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { useEmulatedGpu } from "../examples/sharded-llama/testing/emulated-gpu.ts";
import { backendKind, LAUNCH_BACKENDS } from "../src/runtime/world/index.ts";
import { runCli } from "./helpers/cli.ts";
import { MPIS } from "./helpers/mpi.ts";
import { spread } from "./support/spread.ts";

const hasStandIn = useEmulatedGpu();
const standInReason = hasStandIn ? undefined : "the stand-in library needs g++";
/** Why a backend cannot run here, where it cannot. */
const ABSENT: Readonly<Record<string, string | undefined>> = {
  nccl: standInReason,
  cuda: standInReason,
  mpi: MPIS.some(({ installed }) => installed) ? undefined : "no MPI is installed",
};
const root = fileURLToPath(new URL("../examples", import.meta.url));

interface Runs {
  readonly flags: readonly string[];
  readonly args: readonly string[];
  /** What it prints where all went well. */
  readonly prints: RegExp;
}

const EXAMPLES: Readonly<Record<string, Runs>> = {
  "data-parallel": {
    flags: ["-n", "2"],
    args: ["--steps", "20"],
    prints: /2 all-reduces a step on 2 ranks; losses differ from one rank's by at most \d\.\de-(0[6-9]|[6-9]|1\d)\b/,
  },
  rebuild: {
    flags: ["-n", "3", "--restarts", "2"],
    args: ["--kill", "1:20", "--kill", "2:50"],
    prints: /y = (2\.99|3\.00)\d+ x \+ -(0\.99|1\.00)\d+ after 200 steps, on 3 ranks of generation 3/,
  },
  "sharded-llama": {
    flags: ["-n", "2"],
    args: ["--model", join(root, "sharded-llama/model"), "--tp", "2", "--prompt", "ROMEO:", "--max-new-tokens", "2"],
    prints: /-- 2 tokens, [\d.]+ a second, dp 1 x pp 1 x tp 2/,
  },
};

/** Examples without ranks, and what runs them. */
const WITHOUT_RANKS = { "write-a-collective": "ring.test.ts" };

async function run(backend: string, name: string, { flags, args }: Runs): Promise<{ code: number; text: string }> {
  const script = join(root, name, "main.ts");
  const words = ["launch", "--backend", backend, "--timeout", "120", ...flags, script, "--", ...args];
  const { code, out, err } = await runCli(...words);
  return { code, text: out + err };
}

it("knows every example", () => {
  const found = readdirSync(root, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  expect(found.map(({ name }) => name).sort()).toEqual(
    [...Object.keys(EXAMPLES), ...Object.keys(WITHOUT_RANKS)].sort(),
  );
  for (const [name, test] of Object.entries(WITHOUT_RANKS)) expect(existsSync(join(root, name, test))).toBe(true);
});

describe.each(Object.entries(EXAMPLES).map(([name, runs], index) => ({ name, runs, index })))(
  "examples/$name",
  (example) => {
    const { name, runs, index } = example;
    it("has a test of its own, on threads", () => expect(existsSync(join(root, name, "main.test.ts"))).toBe(true));

    // What one example leaves out of the backends, the next ones run on.
    const others = LAUNCH_BACKENDS.filter((backend) => backend !== "threads");
    for (const backend of spread(others, 5, index)) {
      const why = ABSENT[backend];
      const title = `runs on ${backend}, or is refused where the backend cannot${why === undefined ? "" : ` (skipped: ${why})`}`;
      it.skipIf(why !== undefined)(title, { timeout: 180_000 }, async () => {
        const { code, text } = await run(backend, name, runs);
        const { rebuildRefusal } = await backendKind(backend);
        if (runs.flags.includes("--restarts") && rebuildRefusal !== undefined) {
          expect(text).toContain(rebuildRefusal);
          expect(code).toBe(2);
          return;
        }
        expect(text).toMatch(runs.prints);
        expect(code).toBe(0);
      });
    }
  },
);
