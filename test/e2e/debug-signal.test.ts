/** Ranks do not open Node's inspector at SIGUSR1, which MPICH's launcher sends to the survivors of a rank that failed. */
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { launch } from "chorale";
import { describe, expect, it } from "vitest";
import { CLI_PROCESS } from "../helpers/cli.ts";
import { MPIS, nameOf } from "../helpers/mpi.ts";
import { scratchFolder } from "../helpers/scratch.ts";
import { freePort } from "../support/free-port.mjs";

const folder = scratchFolder("debug-signal");
const chorale = JSON.stringify(new URL("../../.cache/dev/index.js", import.meta.url).href);
const hasFlag = process.allowedNodeEnvironmentFlags.has("--disable-sigusr1");

/** What a rank says once the signal has come and Node has had time to open its inspector. */
const told = async () => {
  const { url } = await import("node:inspector");
  process.kill(process.pid, "SIGUSR1");
  await new Promise((resolve) => setTimeout(resolve, 300));
  return { url: url(), flags: process.execArgv.filter((flag) => flag === "--disable-sigusr1") };
};
const silent = { url: undefined, flags: hasFlag ? ["--disable-sigusr1"] : [] };

const joining = join(folder, "joins.mjs");
writeFileSync(
  joining,
  `import { joinWorld } from ${chorale};
  import { url } from "node:inspector";
  let heard = 0;
  if (process.argv[2] === "listens") process.on("SIGUSR1", () => heard++);
  const world = await joinWorld();
  await world.close();
  process.kill(process.pid, "SIGUSR1");
  await new Promise((resolve) => setTimeout(resolve, 300));
  console.log(JSON.stringify({ url: url(), heard }));`,
);

function node(args: readonly string[], env: Readonly<Record<string, string>>): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(process.execPath, args, { env: { ...process.env, ...env } }, (error, stdout, stderr) =>
      error === null ? resolve(stdout + stderr) : reject(error),
    );
  });
}

describe("a rank that is sent SIGUSR1 opens no inspector", () => {
  it("as a process of chorale's launcher", async () => {
    const found = await launch({ ranks: 2, backend: "shm", isolation: "process", run: told });
    expect(found).toEqual([silent, silent]);
  });

  it.for(MPIS)("as a process of $family", async (mpi, { skip }) => {
    skip(!mpi.installed, nameOf(mpi));
    const found = await launch({ ranks: 2, backend: "mpi", env: { CHORALE_MPI_LIBRARY: mpi.library }, run: told });
    expect(found).toEqual([silent, silent]);
  });

  it("as a thread of chorale launch", async () => {
    const script = join(folder, "thread.mjs");
    writeFileSync(
      script,
      `export default async () => {
        process.kill(process.pid, "SIGUSR1");
        await new Promise((resolve) => setTimeout(resolve, 300));
      };`,
    );
    const said = await node([...CLI_PROCESS, "launch", "-n", "2", script], {});
    expect(said).not.toMatch(/Debugger/);
  });

  it("as a process of another launcher, also once its world is closed", async () => {
    const port = await freePort();
    const env = { CHORALE_BACKEND: "tcp", CHORALE_SECRET: "of this test alone", CHORALE_RDZV: `127.0.0.1:${port}` };
    const said = await Promise.all(
      ["listens", ""].map((how, rank) =>
        node([joining, how], { ...env, WORLD_SIZE: "2", RANK: String(rank), LOCAL_RANK: String(rank) }),
      ),
    );
    expect(said.map((text) => JSON.parse(text) as unknown)).toEqual([{ heard: 1 }, { heard: 0 }]);
  });
});

it("runs ranks of MPI with the flags of the launching program's Node", async ({ skip }) => {
  const mpi = MPIS.find(({ installed }) => installed);
  if (mpi === undefined) return skip("needs an MPI");
  const program = `import { launch } from ${chorale};
    const found = await launch({ ranks: 1, backend: "mpi", run: () => process.execArgv });
    console.log(found[0].join());`;
  const path = join(folder, "launches.mjs");
  writeFileSync(path, program);
  const said = await node(["--stack-trace-limit=7", path], { CHORALE_MPI_LIBRARY: mpi.library });
  expect(said).toContain("--stack-trace-limit=7");
});
