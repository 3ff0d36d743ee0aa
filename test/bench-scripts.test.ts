/** The scripts of bench/ and test/campaigns/ are run by hand, and rarely: this holds what they import against the build. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const scripts = ["bench", "bench/peers", "test/campaigns", "scripts"].flatMap((folder) =>
  readdirSync(join(root, folder))
    .filter((file) => file.endsWith(".mjs"))
    .map((file) => join(folder, file)),
);

it("every script imports what the build exports", { timeout: 300_000 }, async () => {
  expect(scripts.length).toBeGreaterThan(40);
  const { errors } = await build({
    absWorkingDir: root,
    entryPoints: scripts,
    outdir: "unused",
    write: false,
    bundle: true,
    // What they share is printed once.
    splitting: true,
    packages: "external",
    platform: "node",
    format: "esm",
    logLevel: "silent",
  }).catch((failure: { errors: { text: string; location: { file: string } | null }[] }) => failure);
  expect(errors.map(({ text, location }) => `${location?.file}: ${text}`)).toEqual([]);
});

it("every script of bench/ reads its command line with flagsOf, and so answers --help", () => {
  const library = /^bench\/(?:peers\/|planner-(?:points|priors)|sign-test)/;
  const benches = scripts.filter((file) => file.startsWith("bench/") && !library.test(file));
  expect(benches.length).toBeGreaterThan(15);
  const without = benches.filter((file) => !/flagsOf\(/.test(readFileSync(join(root, file), "utf8")));
  expect(without).toEqual([]);
});
