import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { buildFakeGpu, fakeGpuFolder } from "../helpers/fake-gpu.ts";
import { spread } from "../support/spread.ts";

interface Report {
  readonly rows: readonly { readonly how: string; readonly inFlight: number; readonly codes: readonly string[] }[];
  readonly problems: readonly string[];
}

/** Runs a short campaign of two ranks. */
function campaign(kinds: readonly string[], flags: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const script = fileURLToPath(new URL("faults.mjs", import.meta.url));
  const all = [
    "--ranks",
    "2",
    "--each",
    "1",
    "--deadline",
    "4000",
    "--late",
    "20000",
    "--only",
    kinds.join(),
    "--json",
    ...flags,
  ];
  const { stdout, stderr, status } = spawnSync(process.execPath, [script, ...all], {
    encoding: "utf8",
    env: { ...process.env, ...env },
  });
  // How far it is, should it take long here.
  expect(stderr.replace(/^\d+ of \d+ failures after \d+ s\n/gm, "")).toBe("");
  return { ...(JSON.parse(stdout) as Report), status };
}

const codes = ({ rows }: Report) => rows.map(({ how, codes: told }) => [how, told.join()]);

/** The campaign itself runs on hosts with GPUs; here short ones show that its script holds. */
describe("the fault campaign", () => {
  it("comes back from a throw, a silence and a mismatch in one world", { timeout: 60_000 }, () => {
    const flags = ["--backend", "threads", "--kills", "1", "--big", "1000"];
    const { problems, status, ...report } = campaign(["throw", "never-calls", "mismatch"], flags);
    expect(problems).toEqual([]);
    expect(codes(report as Report)).toEqual([
      ["throw", "RANK_FAILED"],
      ["never-calls", "TIMEOUT"],
      ["mismatch", "MISMATCH"],
    ]);
    expect(status).toBe(0);
  });

  it("refuses kinds that there are not, and among threads those that end the process", () => {
    const script = fileURLToPath(new URL("faults.mjs", import.meta.url));
    for (const [kind, isolation] of [
      ["nope", "process"],
      ["sigkill+wait", "thread"],
    ] as const) {
      const flags = ["--only", `mismatch,${kind}`, "--isolation", isolation];
      const { stderr, status } = spawnSync(process.execPath, [script, ...flags], { encoding: "utf8" });
      expect([status, stderr]).toEqual([2, expect.stringContaining(`--only is "${kind}"`)]);
    }
  });

  const library = buildFakeGpu();
  describe.skipIf(library === undefined)("on nccl over a stand-in library (needs g++)", () => {
    const standIn = {
      CHORALE_CUDA_LIBRARY: library ?? "",
      CHORALE_NCCL_LIBRARY: library ?? "",
      FAKE_CUDA_DEVICES: "2",
      // A sixteenth of it is touched at a time, by who allocates all there is.
      FAKE_CUDA_MEMORY: String(2 ** 27),
      // Eight calls of the victim are to run still when it has issued them all, on a busy machine too.
      FAKE_NCCL_CALL_US: "15000",
    };

    it("breaks ranks whose collectives are on the device, however survivors wait", { timeout: 60_000 }, () => {
      const told = [
        ["midflight", "RANK_FAILED"],
        ["abort", "ABORTED"],
        ["midflight+wait", "RANK_FAILED"],
        ["midflight+download", "RANK_FAILED"],
        ["never-calls+allocate", "TIMEOUT"],
      ] as const;
      const some = spread(told, 2);
      const kinds = some.map(([kind]) => kind);
      const { problems, status, ...report } = campaign(kinds, ["--kills", "1", "--big", "20000"], standIn);
      expect(problems).toEqual([]);
      expect(codes(report as Report)).toEqual(some);
      expect(status).toBe(0);
    });

    it("kills processes whose collectives are on the device", { timeout: 60_000 }, () => {
      const folder = fakeGpuFolder();
      try {
        const flags = ["--isolation", "process", "--kills", "1", "--big", "20000"];
        const { problems, rows } = campaign(["sigkill-midflight"], flags, {
          ...standIn,
          FAKE_GPU_FOLDER: folder.path,
        });
        expect(problems).toEqual([]);
        expect(rows).toMatchObject([{ how: "sigkill-midflight", times: 1, inFlight: 1, codes: ["RANK_FAILED"] }]);
      } finally {
        folder.remove();
      }
    });

    it("says so when nothing was on the device", { timeout: 60_000 }, () => {
      const env = { ...standIn, FAKE_NCCL_CALL_US: "0" };
      const { problems, status } = campaign(["midflight"], ["--kills", "1", "--big", "100"], env);
      expect(problems).toEqual(["generation 1 (midflight): not what its name says: the victim had nothing in flight"]);
      expect(status).toBe(1);
    });
  });
});
