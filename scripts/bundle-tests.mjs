/** Modules of test/ as JavaScript that Node runs, for the scripts and campaigns that use them outside vitest. */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Bundles a module of the repository (its path from the root) into one file; packages stay outside. */
export const bundleTests = (entry, outfile, plugins = []) =>
  build({
    entryPoints: [join(root, entry)],
    outfile,
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node20",
    packages: "external",
    logLevel: "error",
    plugins,
  });

/** Bundles and loads a module of the repository. */
export async function importTests(entry) {
  mkdirSync(join(root, ".cache"), { recursive: true });
  // A folder of its own: several runs may go on beside each other. In the repository, so that packages are found.
  const folder = mkdtempSync(join(root, ".cache/bundle-"));
  try {
    const outfile = join(folder, "bundle.mjs");
    await bundleTests(entry, outfile);
    return await import(pathToFileURL(outfile).href);
  } finally {
    rmSync(folder, { recursive: true });
  }
}
