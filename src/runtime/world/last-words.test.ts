/** What a rank's process said last is heard, though the launcher writes to it when it is gone. */
import { readFileSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import { expect, it } from "vitest";
import { RankProcess } from "./rank-process.ts";

/** Blocks this thread, which reads nothing meanwhile, until a process has ended; nobody has asked for its exit code then. */
function blockUntilEnded(pid: number): void {
  const until = performance.now() + 30_000;
  while (!/\) Z /.test(readFileSync(`/proc/${pid}/stat`, "latin1"))) {
    if (performance.now() > until) throw new Error("the process goes on");
  }
}

it.skipIf(process.platform !== "linux")("hears a rank's last message after a write to it has failed", async () => {
  const host = new RankProcess({});
  const heard: string[] = [];
  const ended = new Promise<number>((resolve) => {
    host.listen({
      line: () => {},
      message: ({ kind }) => void heard.push(kind),
      crash: (error) => void heard.push(String(error)),
      exit: (_code, _reason) => resolve(heard.length),
    });
  });
  const module = { url: "data:text/javascript,throw new Error('the origin')", path: "x", isCommonJs: false };
  const place = { rank: 0, worldSize: 1, generation: 1, env: {}, reap: [] };
  host.run({ ...place, module, engine: { backend: "none" } } as never);
  await nextTurn();
  blockUntilEnded(host.pid ?? 0);
  host.send({ kind: "bootstrap-failed", generation: 1, rank: 0, message: "late" });
  await ended;
  expect(heard).toEqual(["failed"]);
});
