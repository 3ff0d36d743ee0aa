/**
 * Transpiles src/ (types stripped) into .cache/dev/, where worker threads and child processes of the tests run it: Node 20
 * cannot load TypeScript. The rooms that every rank loads are bundled as in dist/: a rank on threads loads
 * seven files instead of 150. A second copy, .cache/unit/, is what the tests themselves import: Node loads it in a
 * tenth of the time that Vite takes, and without bundles each module exists once. Only this one has source maps: Node reads
 * those of all that it loads, which was a fifth of the CPU of a world of threads. Takes 5 s of CPU where something changed since
 * the last time; files that did not change are not rewritten, so that several test runs may share the folders.
 */
import { existsSync, readdirSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { transform } from "esbuild";
import { stateOfSources, writeBuiltPlans } from "./built-plans.mjs";
import { bundledRooms } from "./bundle-rooms.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
/** Beside src/, what the copies are made of. */
const MAKERS = [
  ...["transpile", "bundle-rooms", "built-plans"].map((name) => `scripts/${name}.mjs`),
  ...readdirSync(join(root, "bench"), { encoding: "utf8" })
    .filter((file) => file.endsWith(".mjs"))
    .map((file) => `bench/${file}`),
  ...["package.json", "package-lock.json"],
];

/** @returns {Promise<string>} the folder that holds the transpiled copy of src/ */
export async function transpileSources() {
  const out = join(root, ".cache/dev");
  const unit = join(root, ".cache/unit");
  const state = await stateOfSources(["."], MAKERS);
  const stamp = join(unit, ".state");
  if (existsSync(stamp) && (await readFile(stamp, "utf8")) === state) return out;
  await rm(stamp, { force: true });
  let isWhole = true;
  // What does not parse fails its own tests; it must not keep every other test from running.
  const complain = (error) => {
    isWhole = false;
    console.error(String(error));
  };
  const entries = await readdir(join(root, "src"), { recursive: true, withFileTypes: true });
  const bundled = await bundledRooms(out, {}).catch((error) => complain(error) ?? []);
  const doors = new Set(bundled.map(({ path }) => path));
  const results = await Promise.allSettled([
    ...bundled.map(({ path, text }) => writeChanged(path, text)),
    ...entries
      .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name) && !/\.(test|test-d)\.tsx?$/.test(entry.name))
      .map(async (entry) => {
        const source = join(entry.parentPath, entry.name);
        const file = relative(join(root, "src"), source).replace(/\.tsx?$/, ".js");
        const text = await readFile(source, "utf8");
        const { code } = await transform(text, {
          loader: entry.name.endsWith("x") ? "tsx" : "ts",
          format: "esm",
          target: "node20",
          sourcemap: "inline",
          // Stack traces need places alone; the sources' text would double what every process reads.
          sourcesContent: false,
          sourcefile: source,
        });
        const javascript = code.replace(/(from\s*|import\s*\(?\s*)"(\.{1,2}\/[^"]+)\.tsx?"/g, '$1"$2.js"');
        const unmapped = javascript.replace(/^\/\/# sourceMappingURL=.*\n/m, "");
        await writeChanged(join(unit, file), javascript);
        if (!doors.has(join(out, file))) await writeChanged(join(out, file), unmapped);
      }),
  ]);
  for (const result of results) if (result.status === "rejected") complain(result.reason);
  await writeBuiltPlans(unit, [unit, out]).catch(complain);
  if (isWhole) await writeChanged(stamp, state);
  return out;
}

async function writeChanged(target, text) {
  if (existsSync(target) && (await readFile(target, "utf8")) === text) return;
  await mkdir(dirname(target), { recursive: true });
  const temporary = `${target}.${process.pid}.tmp`;
  await writeFile(temporary, text);
  await rename(temporary, target);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.error(await transpileSources());
