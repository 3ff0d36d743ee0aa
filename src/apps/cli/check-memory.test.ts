/** How much memory `chorale check` takes for a large plan, measured from outside: the whole process, its code included. */
import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { isFull, spread } from "../../../test/support/spread.ts";
import { mscclppAllReducePackets } from "../../authoring/algorithms/index.ts";
import { writeMscclpp } from "../../authoring/language/index.ts";

/**
 * 64 ranks take 260 to 345 MB on Node 20 to 26, 220 to 250 MB where the plan is in a file: CHORALE_FULL=1 checks those.
 * 32 ranks take 100 to 110 MB.
 */
const { numRanks, leastBytes, limitMB } = isFull
  ? { numRanks: 64, leastBytes: 80e6, limitMB: 400 }
  : { numRanks: 32, leastBytes: 11e6, limitMB: 160 };
const main = fileURLToPath(new URL("../../../.cache/dev/apps/cli/main.js", import.meta.url));
const script = `
const { main } = await import(process.argv[1]);
process.exitCode = await main(["check", ...process.argv.slice(2)]);
process.stderr.write(JSON.stringify({ peakMB: process.resourceUsage().maxRSS / 1024 }));`;
const taken = spread(["plan", "program"], 2);
let folder = "";

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "chorale-memory-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Runs the command in a process of its own. @returns its output and its peak of resident memory */
function check(...argv: string[]): { out: string; peakMB: number } {
  const errors = join(folder, "stderr.json");
  const fd = openSync(errors, "w+");
  try {
    const out = execFileSync(process.execPath, ["--input-type=module", "-e", script, main, ...argv], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", fd],
      timeout: 110_000,
    });
    return { out, peakMB: (JSON.parse(readFileSync(errors, "utf8")) as { peakMB: number }).peakMB };
  } finally {
    closeSync(fd);
  }
}

describe("the memory of chorale check", () => {
  it.runIf(taken.includes("plan"))(
    `stays below ${limitMB} MB for MSCCL++'s packet all-reduce of ${numRanks} ranks, from its plan`,
    {
      timeout: 120_000,
    },
    () => {
      const file = join(folder, "allreduce_pkt.json");
      const fd = openSync(file, "w");
      let size = 0;
      let pieces: string[] = [];
      const flush = () => {
        size += writeSync(fd, pieces.join(""));
        pieces = [];
      };
      writeMscclpp(
        mscclppAllReducePackets({ numRanks }),
        (piece) => {
          if (pieces.push(piece) > 4096) flush();
        },
        { compat: "mscclpp" },
      );
      flush();
      closeSync(fd);
      expect(size).toBeGreaterThan(leastBytes);
      const { out, peakMB } = check(file);
      expect(out).toContain("right");
      expect(peakMB).toBeLessThan(limitMB);
    },
  );

  it.runIf(taken.includes("program"))(
    `stays below ${limitMB} MB for the library's of ${numRanks} ranks, program, compilation and proof in one process`,
    {
      timeout: 120_000,
    },
    () => {
      const { out, peakMB } = check("two-shot-packet-all-reduce", "--arg", `numRanks=${numRanks}`);
      expect(out).toContain("right");
      expect(peakMB).toBeLessThan(limitMB);
    },
  );
});
