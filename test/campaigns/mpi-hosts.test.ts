import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { nameOf, OPEN_MPI } from "../helpers/mpi.ts";

const script = fileURLToPath(new URL("mpi-hosts.mjs", import.meta.url));
const url = new URL("../../.cache/dev/index.js", import.meta.url).href;
const namespace = `cho${process.pid}-try`;
const isPermitted = spawnSync("ip", ["netns", "add", namespace]).status === 0;
if (isPermitted) spawnSync("ip", ["netns", "del", namespace]);

describe.skipIf(!OPEN_MPI.installed || !isPermitted)(`${nameOf(OPEN_MPI)}, in network namespaces`, () => {
  it("places ranks on two hosts as the mesh says, and goes host by host over TCP", { timeout: 60_000 }, () => {
    const argv = [script, "--ranks", "2", "--choices", "exchange", "--url", url];
    const { stdout, stderr } = spawnSync(process.execPath, argv, { encoding: "utf8" });
    const { ranks, faults } = JSON.parse(stdout) as { ranks: { address: string }[]; faults: string[] };
    expect(faults, stderr).toEqual([]);
    const [first, second] = ["10.77.0.1", "10.77.0.2"];
    expect(ranks.map(({ address }) => address)).toEqual([first, first, second, second]);
  });
});
