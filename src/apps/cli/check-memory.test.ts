/** How much memory `chorale check` takes for a large plan, measured from outside: the whole process, its code included. */
import { execFileSync } from "node:child_process";
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { mscclppAllReducePackets } from "../../authoring/algorithms/index.ts";
import { writeMscclpp } from "../../authoring/language/index.ts";

/** What 64 ranks stay below: they take 260 to 345 MB on Node 20 to 26. */
const LIMIT_MB = 400;
/** A plan in a file takes 220 to 250 MB for 64 ranks, which CHORALE_FULL=1 checks, and 110 MB for 32. */
const ofFile =
  process.env["CHORALE_FULL"] === "1"
    ? { numRanks: 64, leastBytes: 80e6, limitMB: LIMIT_MB }
    : { numRanks: 32, leastBytes: 11e6, limitMB: 160 };
const main = fileURLToPath(new URL("../../../.cache/dev/apps/cli/main.js", import.meta.url));
const script = `
const { main } = await import(process.argv[1]);
process.exitCode = await main(["check", ...process.argv.slice(2)]);
process.stderr.write(JSON.stringify({ peakMB: process.resourceUsage().maxRSS / 1024 }));`;
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
  it(`stays below ${ofFile.limitMB} MB for MSCCL++'s packet all-reduce of ${ofFile.numRanks} ranks, from its plan`, {
    timeout: 120_000,
  }, () => {
    const file = join(folder, "allreduce_pkt.json");
    const fd = openSync(file, "w");
    let size = 0;
    let pieces: string[] = [];
    const flush = () => {
      size += writeSync(fd, pieces.join(""));
      pieces = [];
    };
    writeMscclpp(
      mscclppAllReducePackets({ numRanks: ofFile.numRanks }),
      (piece) => {
        if (pieces.push(piece) > 4096) flush();
      },
      { compat: "mscclpp" },
    );
    flush();
    closeSync(fd);
    expect(size).toBeGreaterThan(ofFile.leastBytes);
    const { out, peakMB } = check(file);
    expect(out).toContain("right");
    expect(peakMB).toBeLessThan(ofFile.limitMB);
  });

  it(`stays below ${LIMIT_MB} MB for the library's of 64 ranks, program, compilation and proof in one process`, {
    timeout: 120_000,
  }, () => {
    const { out, peakMB } = check("two-shot-packet-all-reduce", "--arg", "numRanks=64");
    expect(out).toContain("right");
    expect(peakMB).toBeLessThan(LIMIT_MB);
  });
});
