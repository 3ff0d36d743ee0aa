/** An NCCL that is too old, or not where it was named, is a value that says so, an exit code, and a finding of the doctor. */
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { buildFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { scratchFolder } from "../../../test/helpers/scratch.ts";

const library = buildFakeGpu();
const dev = (path: string) => fileURLToPath(new URL(`../../../.cache/dev/${path}`, import.meta.url));

function node(args: readonly string[], env: Readonly<Record<string, string>>) {
  const named = { CHORALE_CUDA_LIBRARY: library ?? "", CHORALE_NCCL_LIBRARY: library ?? "", ...env };
  const { status, stdout, stderr } = spawnSync(process.execPath, args, {
    env: { ...process.env, ...named },
    encoding: "utf8",
    timeout: 30_000,
  });
  return { status, stdout, stderr };
}

const LOAD = `import { loadNccl } from ${JSON.stringify(dev("runtime/backends/nccl/index.js"))};
  console.log(JSON.stringify(loadNccl(), ["available", "what", "why", "howToGetIt", "version"]));`;
const load = (env: Readonly<Record<string, string>>) =>
  JSON.parse(node(["--input-type=module", "-e", LOAD], env).stdout) as Readonly<Record<string, string | boolean>>;

describe.skipIf(library === undefined)("NCCL as it is found (needs a C++ compiler)", () => {
  it("is a value when it is too old, with both versions in it", () => {
    expect(load({})).toEqual({ version: "2.28.3" });
    expect(load({ FAKE_NCCL_VERSION: "21400" })).toEqual({ version: "2.14.0" });
    const old = load({ FAKE_NCCL_VERSION: "21304" });
    expect(old).toMatchObject({ available: false, what: "NCCL" });
    expect(old["why"]).toMatch(/fake-gpu-[\w-]+\.so: is NCCL 2\.13\.4, older than 2\.14/);
    expect(old["howToGetIt"]).toContain("2.14 or newer");
    // Up to 2.8 the code was laid out otherwise.
    expect(load({ FAKE_NCCL_VERSION: "2804" })["why"]).toMatch(/is NCCL 2\.8\.4/);
  });

  it("is not looked for elsewhere when the file that was named is missing", () => {
    const { available, why } = load({ CHORALE_NCCL_LIBRARY: "/nowhere/libnccl.so.2" });
    expect(available).toBe(false);
    expect(why).toMatch(
      /^CHORALE_NCCL_LIBRARY names \/nowhere\/libnccl\.so\.2, and nothing else is tried: [^;]*no such file/,
    );
  });

  it("ends a launch with exit code 3, and the doctor says what is wrong", () => {
    const script = join(scratchFolder("old-nccl"), "rank.mjs");
    writeFileSync(script, "export default () => 1;");
    writeFileSync(
      `${script}.cli.mjs`,
      `import { main } from ${JSON.stringify(dev("apps/cli/main.js"))}; process.exitCode = await main(process.argv.slice(2));`,
    );
    const old = { FAKE_NCCL_VERSION: "21304", FAKE_CUDA_DEVICES: "2" };
    const launched = node([`${script}.cli.mjs`, "launch", "-n", "2", "--backend", "nccl", script], old);
    expect(launched.status).toBe(3);
    expect(launched.stderr).toMatch(/is NCCL 2\.13\.4, older than 2\.14/);
    const doctor = node([`${script}.cli.mjs`, "doctor", "--json"], old);
    const report = JSON.parse(doctor.stdout) as Readonly<Record<string, unknown>>;
    expect(JSON.stringify(report)).toMatch(/NCCL_TOO_OLD/);
    expect(JSON.stringify(report)).toMatch(/is NCCL 2\.13\.4, older than 2\.14/);
  });
});
