import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, describe, expect, it } from "vitest";
import { CLI_PROCESS, runCli } from "../../../test/helpers/cli.ts";
import { planFromJson, readMscclpp, readMscclXml } from "../../authoring/interchange/index.ts";
import { verifyPlan } from "../../authoring/verifier/index.ts";

const programs = fileURLToPath(new URL("../../../test/fixtures/programs/", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "chorale-compile-"));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

/** In a process of its own: the test runner moves the lines of what it imports. */
function compileOutside(...args: string[]) {
  return spawnSync(process.execPath, [...CLI_PROCESS, "compile", ...args], { encoding: "utf8" });
}

const compile = (...args: string[]) => runCli("compile", ...args);
const file = (name: string) => join(folder, name);

describe("chorale compile", () => {
  it("prints a user's program by rank and strand, with its own lines", () => {
    const { status, stdout } = compileOutside(`${programs}parameters.ts`, "--arg", "numRanks=3");
    expect(status).toBe(0);
    expect(stdout).toContain("plan gather: all_gather, 3 ranks");
    expect(stdout).toMatch(/put rank 1 output\[0\] <- input\[0\] via memory \d+ {2}\/\/ parameters\.ts:8/);
  });

  it("names files as they are called on any machine: below the package, or below the current folder", () => {
    const filesOf = (text: string, ...args: string[]) => {
      const { stdout } = spawnSync(process.execPath, [...CLI_PROCESS, "compile", text, "--json", ...args], {
        encoding: "utf8",
        cwd: join(programs, ".."),
      });
      return new Set((JSON.parse(stdout) as { sources: { file: string }[] }).sources.map((source) => source.file));
    };
    const ring = [...filesOf("ring-all-reduce", "--arg", "numRanks=2")];
    expect(ring).toEqual([expect.stringMatching(/^chorale\/dist\/authoring\/algorithms\/\w+\.js$/)]);
    expect([...filesOf(`${programs}parameters.ts`, "--arg", "numRanks=3")]).toEqual(["programs/parameters.ts"]);
  });

  it("refuses arguments that the program's schema refuses, and says which", async () => {
    expect(await compile(`${programs}parameters.ts`, "--arg", "numRanks=1")).toMatchObject({
      code: 2,
      err: expect.stringContaining("--arg numRanks is 1"),
    });
    expect(await compile(`${programs}parameters.ts`, "--arg", "numRanks")).toMatchObject({
      code: 2,
      err: expect.stringContaining("name=value"),
    });
  });

  it("refuses an argument that is given twice", async () => {
    expect(await compile("ring-all-reduce", "--arg", "numRanks=3", "--arg", "numRanks=4")).toMatchObject({
      code: 2,
      err: expect.stringContaining('--arg is "numRanks=4"; expected numRanks once'),
    });
  });

  it("refuses programs that no memory holds, before it runs out", async () => {
    expect(await compile("ring-all-reduce", "--arg", "numRanks=160", "--arg", "instances=16")).toMatchObject({
      code: 2,
      err: expect.stringMatching(
        /size of the program is more than 1048576 .*; expected fewer ranks, .* than 160 ranks in 16 instances/,
      ),
    });
  });

  it("refuses arguments that nobody knows: a misspelt one would be ignored without a word", async () => {
    expect(await compile("ring-all-reduce", "--arg", "numRanks=3", "--arg", "instnaces=2")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/--arg instnaces is 2; expected one of numRanks, .*instances/),
    });
    expect(await compile(`${programs}parameters.ts`, "--arg", "numRanks=3", "--arg", "ranks=4")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/--arg ranks is 4; expected an argument that .*parameters.ts knows: numRanks/),
    });
  });

  it("refuses arguments that a program without a schema never reads", async () => {
    const path = file("no-schema.ts");
    const text = (body: string) =>
      `import { allGather, program } from "chorale/language";\nexport default ${body} => program({ name: "g", collective: allGather(n), autoSync: "full" }, (p) => {
        for (const from of p.ranks) for (const to of p.ranks) p.copy(to.output.at(from.id), from.input.at(0));
      });`;
    writeFileSync(path, text("({ numRanks: n = 2 })"));
    expect(await compile(path, "--arg", "numRanks=3")).toMatchObject({ code: 0 });
    expect(await compile(path, "--arg", "numRank=3")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/--arg numRank is 3; expected an argument that .* reads: numRanks/),
    });
    writeFileSync(path, text("(args, n = 2)"));
    expect(await compile(path, "--arg", "numRank=3")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/--arg numRank is 3; expected no arguments: .* reads none/),
    });
  });

  it("says on stderr what the executor of MSCCL++'s JSON does otherwise", async () => {
    const max = [
      "ring-all-reduce",
      "--arg",
      "numRanks=3",
      "--arg",
      "op=max",
      "--compat",
      "mscclpp",
      "-o",
      file("max.json"),
    ];
    const told = await compile(...max);
    expect(told.code).toBe(0);
    expect(told.err).toMatch(/check --target mscclpp would refuse this plan.*\n.*reduces with max/);
    expect(JSON.parse(readFileSync(file("max.json"), "utf8"))).toMatchObject({ collective: "allreduce" });
    expect((await compile(...max, "--no-verify")).err).toBe("");
  });

  it("proves what it compiles: a program without synchronisation is named with its lines", async () => {
    const { status, stderr } = compileOutside(`${programs}broken.ts`);
    expect(status).toBe(1);
    expect(stderr).toMatch(/hasty: (race|undefined-output|missing-contribution)/);
    expect(stderr).toContain("broken.ts:14");
    expect((await compile(`${programs}broken.ts`, "--no-verify")).code).toBe(0);
  });

  it("says in a line why it cannot write there", async () => {
    expect(await compile("ring-all-reduce", "--arg", "numRanks=3", "-o", folder)).toMatchObject({
      code: 2,
      err: expect.stringMatching(/^chorale compile: -o is .*expected a file that can be written: EISDIR: [^\n]*\n$/),
    });
  });

  it("shows the ranks that are asked for, in one option or several", async () => {
    for (const words of [
      ["--rank", "0", "2"],
      ["--rank", "0", "--rank", "2"],
    ]) {
      const { code, out } = await compile("ring-all-reduce", "--arg", "numRanks=3", ...words);
      expect([code, [...out.matchAll(/^rank (\d+)/gm)].map(([, rank]) => rank)]).toEqual([0, ["0", "2"]]);
    }
  });

  it("refuses a folder to read and ranks that are no numbers", async () => {
    expect(await compile(folder)).toMatchObject({
      code: 2,
      err: expect.stringMatching(/is a folder; expected a file/),
    });
    expect(await compile("ring-all-reduce", "--arg", "numRanks=3", "--rank", "x")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/--rank is "x"/),
    });
  });

  it("ends quietly when the reader of its output has left", () => {
    const words = ["compile", "ring-all-reduce", "--arg", "numRanks=24", "--compat", "mscclpp", "--no-verify"];
    const piped = ["-c", 'set -o pipefail; "$0" "$@" | true', process.execPath];
    const { status, stderr } = spawnSync("bash", [...piped, ...CLI_PROCESS, ...words], { encoding: "utf8" });
    expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
  });

  it("writes the formats of executors, and reads them back as the same plan", async () => {
    for (const name of ["plan.json", "plan.xml"]) {
      expect((await compile("ring-all-reduce", "--arg", "numRanks=3", "-o", file(name))).code).toBe(0);
    }
    expect(
      (await compile("ring-all-reduce", "--arg", "numRanks=3", "--target", "json", "-o", file("mscclpp.json"))).code,
    ).toBe(0);
    expect(verifyPlan(planFromJson(readFileSync(file("plan.json"), "utf8"))).ok).toBe(true);
    expect(verifyPlan(readMscclpp(readFileSync(file("mscclpp.json"), "utf8"))).ok).toBe(true);
    expect(verifyPlan(readMscclXml(readFileSync(file("plan.xml"), "utf8"))).ok).toBe(true);
    const same = await compile("--diff", file("plan.json"), file("mscclpp.json"));
    expect(same).toMatchObject({ code: 0, out: expect.stringContaining("no difference") });
  });

  it("shows how two plans differ, and exits with 1", async () => {
    expect((await compile("ring-all-gather", "--arg", "numRanks=2", "-o", file("a.json"))).code).toBe(0);
    expect((await compile("direct-all-gather", "--arg", "numRanks=2", "-o", file("b.json"))).code).toBe(0);
    const { code, out } = await compile("--diff", file("a.json"), file("b.json"));
    expect(code).toBe(1);
    expect(out).toMatch(/^@ rank 0 strand 0$/m);
    expect(out).toMatch(/^[-+] copy output\[0\] <- input\[0\]$/m);
  });

  it("shows the plan after each pass", async () => {
    const { code, out } = await compile("ring-all-reduce", "--arg", "numRanks=2", "--print-after", "all");
    expect(code).toBe(0);
    for (const pass of ["record", "auto-sync", "fuse", "sync: proved right", "tables: proved right"])
      expect(out).toContain(`=== after ${pass}`);
    expect(await compile("ring-all-reduce", "--arg", "numRanks=2", "--print-after", "magic")).toMatchObject({
      code: 2,
      err: expect.stringContaining("record, auto-sync, fuse"),
    });
  });

  it("refuses what the MSCCL++ executor cannot hold, with the place", async () => {
    expect(
      await compile("ring-all-reduce", "--arg", "numRanks=16", "--target", "json", "-o", file("big.json")),
    ).toMatchObject({
      code: 1,
      err: expect.stringMatching(/149 operations in a strand, the executor holds 64, at rank 0, strand 0/),
    });
  });

  it("writes the CUDA kernel of a program, with its own lines, and only in a dtype that it can round once", async () => {
    const { status, stdout } = compileOutside(`${programs}parameters.ts`, "--arg", "numRanks=3", "--target", "cuda");
    expect(status).toBe(0);
    expect(stdout).toContain('// Generated by chorale from the plan "gather": all_gather, f32, 3 ranks.');
    expect(stdout).toMatch(/\/\/ put rank 1 output\[0\] <- input\[0\] via memory \d+ {2}parameters\.ts:8/);
    const ring = ["ring-all-reduce", "--arg", "numRanks=3", "--dtype", "bf16", "-o", file("ring.cu")];
    expect(await compile(...ring)).toMatchObject({ err: expect.stringMatching(/combines partial results/) });
    expect((await compile("two-shot-all-reduce", ...ring.slice(1))).code).toBe(0);
    expect(readFileSync(file("ring.cu"), "utf8")).toContain("CHORALE_KERNEL chorale_plan(");
  });

  it("writes no kernel of a plan in a file that would hang, unless it is told not to look", async () => {
    await compile("ring-all-reduce", "--arg", "numRanks=2", "-o", file("hangs.json"), "--target", "chorale");
    const plan = JSON.parse(readFileSync(file("hangs.json"), "utf8")) as {
      ranks: { strands: { ops: { kind: string }[] }[] }[];
    };
    const ops = plan.ranks[0]?.strands[0]?.ops ?? [];
    ops.splice(
      ops.findIndex(({ kind }) => kind === "signal"),
      1,
    );
    writeFileSync(file("hangs.json"), JSON.stringify(plan));
    const words = ["--target", "cuda", "-o", file("hangs.cu")];
    expect(await compile(file("hangs.json"), ...words)).toMatchObject({
      code: 1,
      err: expect.stringMatching(/never ends[\s\S]*--no-verify writes its kernel all the same/),
    });
    expect((await compile(file("hangs.json"), ...words, "--no-verify")).code).toBe(0);
    // Other formats are for whoever mends it: written, but not in silence.
    for (const target of ["text", "chorale", "json"]) {
      const told = await compile(file("hangs.json"), "--target", target);
      expect([told.code, told.err], target).toEqual([
        0,
        expect.stringMatching(/this plan is wrong, \d+ findings? \(chorale check shows all.*first:\n.*never ends/s),
      ]);
      expect((await compile(file("hangs.json"), "--target", target, "--no-verify")).err, target).toBe("");
    }
  });

  it("makes MSCCL++'s own plan on request", async () => {
    expect(
      (await compile("direct-all-gather", "--arg", "numRanks=2", "--compat", "mscclpp", "-o", file("compat.json")))
        .code,
    ).toBe(0);
    expect(readFileSync(file("compat.json"), "utf8")).toMatch(
      /^\{\n {2}"name": "direct-all-gather",\n {2}"collective": "allgather"/,
    );
  });

  it("names files and formats that there are not", async () => {
    expect(await compile("nowhere.json")).toMatchObject({ code: 2, err: expect.stringContaining("ring-all-reduce") });
    expect(await compile("ring-all-reduce", "--target", "wasm")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/text, chorale, json, xml, cuda/),
    });
    expect((await compile()).code).toBe(2);
  });
});
