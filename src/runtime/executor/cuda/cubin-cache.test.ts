import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import type { Nvrtc } from "../../../foreign/cuda/index.ts";
import { compileCached } from "./cubin-cache.ts";

const folder = mkdtempSync(join(tmpdir(), "chorale-cubins-"));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

let compilations = 0;
const compiler = (version: readonly [number, number]) =>
  ({
    version,
    compile: (source: string, [major]: readonly [number, number]) => {
      compilations++;
      return Uint8Array.of(source.length, major);
    },
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
