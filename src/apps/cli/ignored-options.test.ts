/** Options that would be ignored, and values that mean nothing, are refused: an answer would look as if it heeded them. */
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { runCli } from "../../../test/helpers/cli.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";

const folder = scratchFolder("ignored-options");
const script = join(folder, "rank.mjs");
writeFileSync(script, "export default async (world) => world.rank;");
const trace = join(folder, "trace.json");

const ring = ["ring-all-reduce", "--arg", "numRanks=4"];
const on8 = ["--topology", "hgx-h100-8"];
const of1K = ["-b", "1K", "-e", "1K"];
const library = ["sim", ...on8, ...of1K, "--nccl", "--op", "all_reduce"];

describe("a command refuses", () => {
  it.each<[readonly string[], RegExp]>([
    [["detect", "--sort", "id", "--sort", "name"], /--sort is "name"; expected one value: "id" was given before/],
    [["sim", ...ring, ...on8, "-b", "1K", "-b", "2K"], /--min is "2K"; expected one value: "1K" was given before/],
    [["plan", "7B", "--constrain", "tp=2", "--constrain", "tp=4"], /--constrain is "tp=4"; .*tp=2 was given before/],
    [["plan", "7B", "--constrain", "tp=2,tp=4"], /--constrain is "tp=4"; expected one size of tp: tp=2 was given/],
    [
      ["plan", "7B", "--hardware", "hgx-h100-8", "--link", "nvlink=64", "--link", "nvlink=x2"],
      /--link is "nvlink=x2"; expected one change of nvlink: "nvlink=64" was given before/,
    ],
    [["detect", "--no-redact"], /--no-redact is given; expected --record beside it/],
    [["detect", "--json", "--columns", "id"], /--columns is "id"; expected nothing: JSON has all/],
    [["compile", ...ring, "--dtype", "f16"], /--dtype is "f16"; expected --target cuda beside it/],
    [["compile", ...ring, "--rank", "4"], /--rank is "4"; expected ranks from 0 to 3/],
    [["compile", ...ring, "--target", "json", "--rank", "1"], /--rank .*expected --target text beside it/],
    [["compile", ...ring, "--json", "--target", "xml"], /--target is "xml"; expected chorale or nothing, since --json/],
    [["compile", ...ring, "--print-after", "all", "--json"], /--json is true; expected no --print-after beside it/],
    [["compile", "ring-all-reduce", ...ring, "--diff", "--rank", "1"], /--rank .*expected no --diff beside it/],
    [["compile", ...ring, "--arg", "instances=100000"], /instances is 100000; expected an integer from 1 to 256/],
    [["compile", ...ring, "--arg", "inPlace=maybe"], /inPlace is "maybe"; expected true or false/],
    [["compile", ...ring, "--arg", "root=1"], /--arg root is 1; expected nothing: all_reduce has no root/],
    [["compile", ...ring, "--arg", "chunks=9"], /--arg chunks is 9; expected nothing: ring-all-reduce is no pipeline/],
    [["compile", ...ring, "--arg", "ranksPerNode=2"], /--arg ranksPerNode is 2; expected nothing/],
    [["compile", ...ring, "--arg", "sendTo=[1,0]"], /--arg sendTo is \[1,0\]; expected nothing/],
    [["compile", ...ring, "--arg", "channel=pigeon"], /channel is "pigeon"; expected memory or port/],
    [["compile", "direct-all-gather", "--arg", "numRanks=2", "--arg", "op=max"], /all_gather reduces nothing/],
    [
      ["compile", "direct-all-to-all-v", "--arg", "numRanks=2", "--arg", "sendCounts=[[1,2],[1]]"],
      /sendCounts is \[1\]; expected a list of 2, one for each rank/,
    ],
    [
      ["compile", "bruck-all-to-all", "--arg", "numRanks=4", "--arg", "inPlace=true"],
      /--arg inPlace is true; expected false: bruck-all-to-all does not work in place/,
    ],
    [
      ["compile", ...ring, "--arg", "minMessageSizeBytes=9", "--arg", "maxMessageSizeBytes=1"],
      /maxMessageSizeBytes is 1n; expected 9 or more/,
    ],
    [["sim", ...ring, ...on8, "-b", "1", "-e", "3"], /-b is 1; expected at least 4 bytes, one element of f32/],
    [["sim", ...ring, "--topology", "cpu", "--dtype", "f64"], /--dtype f64 with --topology cpu/],
    [["bench", "all_reduce", "-n", "2", "-b", "3", "-e", "3"], /-b is 3; expected at least 4 bytes/],
    [["bench", "barrier", "-n", "2", "-e", "8"], /-e is "8"; expected none: a barrier moves no data/],
    [["sim", ...ring, ...on8, ...of1K, "--protocol", "LL"], /--protocol is "LL"; expected --nccl beside it/],
    [[...library, "--trace", trace], /--trace is .*expected a program or a plan beside it/],
    [
      ["sim", ...ring, ...on8, ...of1K, "--devices", "gpu0,gpu1,gpu0,gpu2"],
      /--devices .* "gpu0" is there more than once/,
    ],
    [[...library, "--devices", "gpu0, gpu0"], /--devices .*expected a device for each rank/],
    [["synth", "all_gather", ...on8, "--devices", "gpu0,gpu0"], /--devices .* "gpu0" is there more than once/],
    [["synth", "all_gather", ...on8, "--size", "0"], /--size is "0"; expected a size above 0/],
    [["synth", "all_gather", ...on8, "--strands", "few"], /--strands is "few"; expected -o beside it/],
    [["tune", "all_reduce", "--show"], /--show is given with all_reduce; expected nothing beside it/],
    [["tune", "all_reduce", "--reset"], /--reset is given with all_reduce; expected nothing beside it/],
    [["launch", "-n", "2", "--ssh", "ssh", script], /--ssh is "ssh"; expected --hostfile beside it/],
    [
      ["launch", "-n", "2", "--restart-delay", "5", script],
      /restartDelayMs is 5000; expected nothing without onFailure/,
    ],
    [
      ["launch", "-n", "2", "--rebuild-timeout", "5", script],
      /rebuildTimeoutMs is 5000; expected nothing without onFailure/,
    ],
    [
      ["bench", "all_gather", "-n", "2", "--redop", "sum"],
      /--redop is "sum"; expected none: all_gather reduces nothing/,
    ],
    [["bench", "ring-all-reduce", "-n", "2", "--root", "1"], /--root is 1; expected none: a program's root is its own/],
    [
      ["plan", "7B", "--hardware", "h100", "--prefix-hits", "2"],
      /--prefix-hits .*'2' is invalid. expected a number from/,
    ],
  ])("%j", async (argv, words) => {
    expect(await runCli(...argv)).toMatchObject({ code: 2, out: "", err: expect.stringMatching(words) });
    expect(existsSync(trace)).toBe(false);
  });

  it.each([
    [["compile", ...ring, "-o"], "-o"],
    [["compile", ...ring, "--target", "json", "-o"], "-o"],
    [["sim", "ring-all-reduce", "--arg", "numRanks=8", ...on8, ...of1K, "--trace"], "--trace"],
    [["synth", "all_gather", ...on8, "--certificate"], "--certificate"],
    [["plan", "7B", "--hardware", "h100", "-o"], "--output-file"],
  ] as const)("a file that cannot be written: %j", async (argv, option) => {
    const { code, err } = await runCli(...argv, "/nowhere/out.json");
    expect(err).toContain(`${option} is "/nowhere/out.json"; expected a file that can be written: ENOENT`);
    expect(code).toBe(2);
  });
});
