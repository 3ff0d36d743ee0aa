/** What a rank's process said last is heard, though the launcher writes to it when it is gone. */
import { readFileSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, it, vi } from "vitest";
import { THREADS_KIND } from "../backends/threads/threads-kind.ts";
import { RankGang } from "./rank-gang.ts";
import type { RankHost } from "./rank-host.ts";
import { RankProcess } from "./rank-process.ts";

function hasEnded(pid: number): boolean {
  try {
    return /\) Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1"));
  } catch (error) {
    // It had ended before this looked, and its parent, which Node's thread for that may be, has heard of it.
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return true;
    throw error;
  }
}

/** Blocks this thread, which reads nothing meanwhile, until a process has ended; nobody has asked for its exit code then. */
function blockUntilEnded(pid: number): void {
  const until = performance.now() + 30_000;
  while (!hasEnded(pid)) {
    if (performance.now() > until) throw new Error("the process goes on");
  }
}

/** Has a rank fail and end while nothing is read, and writes to it then. @returns what was heard of it */
async function heardOf(host: RankHost, started: () => Promise<number>): Promise<readonly string[]> {
  const heard: string[] = [];
  const ended = new Promise<void>((resolve) => {
    host.listen({
      line: () => {},
      message: ({ kind }) => void heard.push(kind),
      crash: (error) => void heard.push(String(error)),
      exit: () => resolve(),
    });
  });
  const module = { url: "data:text/javascript,throw new Error('the origin')", path: "x", isCommonJs: false };
  const place = { rank: 0, worldSize: 1, generation: 1, env: {}, reap: [] };
  host.run({ ...place, module, engine: { backend: "none" } } as never);
  const pid = await started();
  await nextTurn();
  blockUntilEnded(pid);
  host.send({ kind: "bootstrap-failed", generation: 1, rank: 0, message: "late" });
  await ended;
  return heard;
}

const isLinux = process.platform === "linux";

it.skipIf(!isLinux)("hears a rank's last message after a write to it has failed", async () => {
  const host = new RankProcess({});
  expect(await heardOf(host, async () => host.pid ?? 0)).toEqual(["failed"]);
});

it.skipIf(!isLinux)("hears it of a rank that an engine's launcher has started", async () => {
  const env = { OMPI_COMM_WORLD_RANK: "0", OMPI_COMM_WORLD_SIZE: "1" };
  const gang = await RankGang.start(
    { ...THREADS_KIND, startTogether: async (_ranks, [command = "", ...args]) => ({ command, args, env }) },
    1,
  );
  const host = gang.member(0);
  const started = () => vi.waitUntil(() => host.pid, { timeout: 60_000, interval: 1 });
  expect(await heardOf(host, started)).toEqual(["failed"]);
});
