import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, it, vi } from "vitest";
import type { Nvrtc } from "../../../foreign/cuda/index.ts";
import { compileAside, compileCached, cubinCache, keptCubin } from "./cubin-cache.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-cubins-"));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

afterEach(() => {
  vi.unstubAllEnvs();
});

let compilations = 0;
const compiler = (version: readonly [number, number]) =>
  ({
    version,
    compile: (source: string, [major]: readonly [number, number]) => {
      compilations++;
      return Uint8Array.of(source.length, major);
    },
    compileAside: async (source: string) => new Uint8Array(1000).fill(source.length),
  }) as unknown as Nvrtc;

it("compiles a source once for each architecture and version of the compiler", () => {
  const newer = compiler([13, 1]);
  const older = compiler([13, 0]);
  expect(compileCached(newer, "abc", [9, 0], folder)).toEqual(Uint8Array.of(3, 9));
  expect(compileCached(newer, "abc", [9, 0], folder)).toEqual(Uint8Array.of(3, 9));
  expect(compilations).toBe(1);
  expect(compileCached(newer, "abc", [10, 0], folder)).toEqual(Uint8Array.of(3, 10));
  compileCached(older, "abc", [9, 0], folder);
  compileCached(older, "abcd", [9, 0], folder);
  expect(compilations).toBe(4);
  expect(readdirSync(folder)).toHaveLength(4);
});

it("compiles anew where a file is damaged, and where nothing can be kept", () => {
  for (const name of readdirSync(folder)) writeFileSync(join(folder, name), "half a fi");
  const before = compilations;
  expect(compileCached(compiler([13, 1]), "abc", [9, 0], folder)).toEqual(Uint8Array.of(3, 9));
  expect(compileCached(compiler([13, 1]), "abc", [9, 0], folder)).toEqual(Uint8Array.of(3, 9));
  expect(compilations).toBe(before + 1);
  const file = join(folder, readdirSync(folder)[0]!);
  expect(compileCached(compiler([13, 1]), "xyz", [9, 0], join(file, "below"))).toEqual(Uint8Array.of(3, 9));
});

it.skipIf(process.platform === "win32")("takes no kernel that another user could have written", () => {
  const shared = join(folder, "shared");
  const compile = () => compileCached(compiler([13, 1]), "abc", [9, 0], shared);
  const countOf = (calls: number) => {
    const before = compilations;
    for (let i = 0; i < calls; i++) expect(compile()).toEqual(Uint8Array.of(3, 9));
    return compilations - before;
  };
  expect(countOf(2)).toBe(1);
  const [name = ""] = readdirSync(shared);
  const path = join(shared, name);
  expect([shared, path].map((one) => statSync(one).mode & 0o777)).toEqual([0o700, 0o600]);
  chmodSync(path, 0o666);
  // It is compiled again, and a file of this user's takes the place of the other.
  expect(countOf(2)).toBe(1);
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

it("leaves no half of a file where a kernel cannot take its place", () => {
  const odd = join(folder, "odd");
  compileCached(compiler([13, 1]), "abc", [9, 0], odd);
  const [name = ""] = readdirSync(odd);
  rmSync(join(odd, name));
  mkdirSync(join(odd, name, "full"), { recursive: true });
  expect(compileCached(compiler([13, 1]), "abc", [9, 0], odd)).toEqual(Uint8Array.of(3, 9));
  expect(readdirSync(odd)).toEqual([name]);
});

it("removes what was not used for longest where the folder has more than it may", async () => {
  const full = join(folder, "full");
  const nvrtc = compiler([13, 1]);
  // Each takes 1000 bytes and 32 of a sum.
  vi.stubEnv("CHORALE_CUBIN_LIMIT", "4K");
  const compile = (source: string) => compileAside(nvrtc, source, [9, 0], full);
  const isKept = (source: string) => keptCubin(nvrtc, source, [9, 0], full) !== undefined;
  const ageTo = (hours: number) => {
    for (const name of readdirSync(full)) {
      const path = join(full, name);
      if (Date.now() - statSync(path).mtimeMs < 60_000)
        utimesSync(path, new Date(), new Date(Date.now() - hours * 3.6e6));
    }
  };
  for (const [source, hours] of [
    ["a", 5],
    ["bb", 4],
    ["ccc", 3],
  ] as const) {
    await compile(source);
    ageTo(hours);
  }
  // Somebody who was killed left half a file, somebody else is writing one, and there is what is nobody's kernel.
  const [half, fresh, other] = ["0".repeat(32), "1".repeat(32), "notes"].map((name) => join(full, name));
  for (const path of [`${half}.cubin.1.x`, `${fresh}.cubin.2.y`, `${other}`]) writeFileSync(path, "half");
  utimesSync(`${half}.cubin.1.x`, new Date(), new Date(Date.now() - 2 * 3.6e6));
  // It is the oldest, but it has been used.
  expect(isKept("a")).toBe(true);
  await compile("dddd");
  expect(["a", "bb", "ccc", "dddd"].map(isKept)).toEqual([true, false, true, true]);
  expect(readdirSync(full).filter((name) => !name.endsWith(".cubin"))).toEqual([
    `${"1".repeat(32)}.cubin.2.y`,
    "notes",
  ]);
  expect(cubinCache(full)).toEqual({ folder: full, numFiles: 4, sizeBytes: 3 * 1032 + 4, limitBytes: 4096 });
  vi.stubEnv("CHORALE_CUBIN_LIMIT", "0");
  await compile("e");
  expect(cubinCache(full)?.numFiles).toBe(1);
  vi.stubEnv("CHORALE_CUBIN_LIMIT", "much");
  await expect(compile("f")).rejects.toThrow('CHORALE_CUBIN_LIMIT is "much"');
});
