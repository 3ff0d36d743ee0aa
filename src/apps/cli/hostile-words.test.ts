/** Words and files that mean nothing are answered with what is wrong with them, by the names that the user gave. */
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";

const folder = scratchFolder("hostile-words");
mkdirSync(folder, { recursive: true });
const file = (name: string, content: string) => {
  writeFileSync(join(folder, name), content);
  return join(folder, name);
};
const other = file("other.json", '{ "a": 1 }');
const network = file("x.network.json", '{ "nodes": 5 }');
const thrower = file("thrower.mjs", 'export default () => { throw new TypeError("of the program"); };');
const on8 = ["--topology", "hgx-h100-8", "-b", "1K", "-e", "1K"];
const ring = ["ring-all-reduce", "--arg", "numRanks=8"];

describe("what is refused", () => {
  it.each<[readonly string[], RegExp]>([
    [["sim", ...ring, ...on8, "--params", other], /other.json: holds no constants: Unrecognized key: "a"/],
    [["sim", ...ring, ...on8, "--devices", "gpu0"], /devices is 1 device; expected a list of 8 devices or more/],
    [["sim", ...ring, "--topology", "l4"], /topology is 1 device; expected a system of 8 devices or more/],
    [["sim", "--nccl", "--op", "all_reduce", ...on8, "--ranks", "8e0"], /--ranks is "8e0"; expected an integer/],
    [
      ["sim", "--nccl", "--op", "all_reduce", ...on8, "--algorithm", "pat"],
      /--algorithm and --protocol is "pat\/any"; expected what NCCL has/,
    ],
    [["synth", "all_gather", "--topology", network], /x.network.json: nodes: Invalid input/],
    [
      ["synth", "all_gather", "--topology", "mi250x-8", "--choices", other],
      /has no schemaVersion; expected a new file/,
    ],
    [["tune", "--fit", other], /--topology is not given; expected the machine that was measured/],
    [["bench", "all_reduce", "-n", "2", "-b", "9P"], /-b is "9P"; expected a size below 8P/],
    [["bench", "all_reduce", "-n", "2", "--redop", "mean"], /--redop is "mean"; expected one of .*, preMulSum/],
    [
      ["bench", "all_reduce", "-n", "2", "--isolation", "process"],
      /--isolation process with the backend threads is not supported; its ranks share the memory of one process/,
    ],
  ])("%j", async (argv, words) => {
    expect(await runCli(...argv)).toMatchObject({ code: 2, out: "", err: expect.stringMatching(words) });
  });

  it("a program that throws what is no Error is told so", async () => {
    const { code, err } = await runCli("check", file("null.mjs", "export default () => { throw null; };"));
    expect([code, err]).toEqual([1, "chorale check: null was thrown, which is not an Error\n"]);
  });

  it("a program that throws is shown with its own lines alone", async () => {
    const { code, err } = await runCli("check", thrower);
    expect(code).toBe(1);
    expect(err).toMatch(/^chorale check: TypeError: of the program\n {4}at thrower_default/);
    expect(err).not.toMatch(/node:|commander|apps\/cli\/main/);
  });
});
