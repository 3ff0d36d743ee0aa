/**
 * Transpiles src/ (types stripped) into .cache/dev/, where worker threads and child processes of the tests run it: Node 20
 * cannot load TypeScript. The rooms that every rank loads are bundled as in dist/: a rank on threads loads
 * seven files instead of 150. A second copy, .cache/unit/, is what the tests themselves import: Node loads it in a
 * tenth of the time that Vite takes, and without bundles each module exists once. Only this one has source maps: Node reads
 * those of all that it loads, which was a fifth of the CPU of a world of threads. Takes about a second; files that did not
 * change are not rewritten, so that several test runs may share the folders.
 */
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { transform } from "esbuild";
import { writeBuiltPlans } from "./built-plans.mjs";
import { bundledRooms } from "./bundle-rooms.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));

/** @returns {Promise<string>} the folder that holds the transpiled copy of src/ */
export async function transpileSources() {
  const out = join(root, ".cache/dev");
  const entries = await readdir(join(root, "src"), { recursive: true, withFileTypes: true });
  const bundled = await bundledRooms(out, {}).catch((error) => {
    // As below: what does not parse fails where it is tested.
    console.error(String(error));
    return [];
  });
  const doors = new Set(bundled.map(({ path }) => path));
  const unit = join(root, ".cache/unit");
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
  // A file that does not parse fails its own tests; it must not keep every other test from running.
  for (const result of results) if (result.status === "rejected") console.error(String(result.reason));
  await writeBuiltPlans(unit, [unit, out]).catch((error) => console.error(String(error)));
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
