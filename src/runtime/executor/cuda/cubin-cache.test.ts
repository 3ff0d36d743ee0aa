import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
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
