/** Worlds over TLS: two hosts, each a `launch()` of this process; and hosts that do not agree on it. */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { withoutNotices } from "../../../test/helpers/notices.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { Authority, writeTls } from "../../../test/support/certificates.ts";
import { freePort } from "../../../test/support/free-port.mjs";
import { InvalidArgumentError, RankFailedError } from "../../core/index.ts";
import type { TlsFiles } from "../rendezvous/index.ts";
import { launch } from "./launch.ts";
import { loadableUrl } from "./package-location.ts";

beforeAll(() => {
  vi.stubEnv("CHORALE_SECRET", randomBytes(32).toString("hex"));
});
afterAll(() => {
  vi.unstubAllEnvs();
});

const authority = new Authority();
const files = ["a", "b"].map((host) => writeTls(scratchFolder(`tls-${host}`), authority));

type Run = NonNullable<Parameters<typeof launch>[0]["run"]>;

/** A world of two hosts of one rank each. @returns what became of each */
async function world(tls: readonly (TlsFiles | undefined)[], run: Run, controller = new AbortController()) {
  const port = await freePort();
  return Promise.allSettled(
    tls.map((own, rank) =>
      launch({
        ranks: 1,
        backend: "tcp",
        backendOptions: { host: `127.0.0.${rank + 1}`, hierarchy: "off" },
        nodes: { count: 2, rank, rendezvous: `127.0.0.1:${port}`, joinTimeoutMs: 20_000 },
        signal: controller.signal,
        timeoutMs: 40_000,
        onOutput: () => {},
        run: run as never,
        ...(own === undefined ? {} : { tls: own }),
      }).catch((error: unknown) => {
        // Whom it waits for does not come.
        if (rank === 1) controller.abort("the other host has failed");
        throw error;
      }),
    ),
  );
}

describe.skipIf(process.platform !== "linux")("a world over TLS (Linux)", () => {
  it("moves data of every size, for ranks that block and ranks that do not", { timeout: 60_000 }, async () => {
    const settled = await world(files, async (world) => {
      const sums: number[] = [];
      for (const count of [1, 20_000, 1_000_003]) {
        const x = world.tensor("i32", [count]);
        for (let i = 0; i < count; i++) x.data[i] = world.rank + i;
        const work = world.comm.allReduce(x);
        if (world.rank === 0) work.wait();
        else await work;
        sums.push((x.data[count - 1] ?? 0) - 2 * (count - 1));
      }
      return sums;
    });
    expect(settled).toEqual([
      {
        status: "fulfilled",
        value: [
          [1, 1, 1],
          [1, 1, 1],
        ],
      },
      { status: "fulfilled", value: [] },
    ]);
  });

  it("tells who was killed, on both hosts", { timeout: 60_000 }, async () => {
    const settled = await world(files, async (world) => {
      await world.comm.barrier();
      if (world.rank === 1) process.kill(process.pid, "SIGKILL");
      await world.comm.barrier();
    });
    for (const one of settled) {
      expect(one).toMatchObject({ status: "rejected", reason: { code: "RANK_FAILED", rank: 1 } });
      expect((one as PromiseRejectedResult).reason).toBeInstanceOf(RankFailedError);
    }
  });

  it("is not joined without it, and the reason is said", { timeout: 60_000 }, async () => {
    // The other way round: rendezvous/tls.test.ts.
    const controller = new AbortController();
    const [first, second] = await world([undefined, files[1]], () => 1, controller);
    expect(String((second as PromiseRejectedResult).reason)).toMatch(/TLS is .*uses no TLS/);
    expect(first).toMatchObject({ status: "rejected", reason: { code: "ABORTED" } });
  });

  it("is joined by processes of other launchers whose certificates are of one authority", {
    timeout: 60_000,
  }, async () => {
    const program = `import { joinWorld } from ${JSON.stringify(loadableUrl("runtime/world/index").href)};
      const world = await joinWorld({ backend: "tcp", timeoutMs: 40000 });
      const x = world.tensor("f32", [100_000]);
      x.data.fill(world.rank + 1);
      await world.comm.allReduce(x);
      console.log(world.rank, world.size, x.data[99_999]);
      await world.close();`;
    const port = await freePort();
    const place = { WORLD_SIZE: "2", LOCAL_RANK: "0", LOCAL_WORLD_SIZE: "1", MASTER_ADDR: "127.0.0.1" };
    const start = async (RANK: string, { ca, cert, key }: TlsFiles) => {
      const tls = { CHORALE_TLS_CA: ca, CHORALE_TLS_CERT: cert, CHORALE_TLS_KEY: key };
      const env = { ...process.env, ...place, ...tls, RANK, MASTER_PORT: String(port - 1) };
      const child = spawn(process.execPath, ["--input-type=module", "-e", program], { env });
      let text = "";
      for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (t) => (text += t));
      const [code] = (await once(child, "close")) as [number];
      return { code, text: withoutNotices(text) };
    };
    const [own, other] = files as [TlsFiles, TlsFiles];
    const first = start("0", own);
    const foreign = new Authority("another authority");
    const intruder = await start("1", writeTls(scratchFolder("tls-intruder"), foreign));
    expect(intruder.code).toBe(1);
    expect(intruder.text).toMatch(/TLS is .*shows a certificate that is refused/);
    expect([await start("1", other), await first]).toEqual([
      { code: 0, text: "1 2 3\n" },
      { code: 0, text: "0 2 3\n" },
    ]);
  });

  it("is refused before anything starts with files that cannot be used, and with backends that do not connect", async () => {
    const [good] = files as [TlsFiles];
    const start = (options: object) => launch({ ranks: 1, backend: "tcp", run: () => 1, tls: good, ...options });
    await expect(start({ tls: { ...good, key: good.cert } })).rejects.toThrow(
      /the TLS key is .*which others can read|the TLS key/,
    );
    await expect(start({ tls: { ca: good.ca } })).rejects.toThrow(InvalidArgumentError);
    await expect(start({ backend: "threads" })).rejects.toThrow(/backend is "threads"; expected tcp with TLS/);
  });
});
