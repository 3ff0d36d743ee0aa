/**
 * Transpiles src/ (types stripped, nothing bundled) into .cache/dev/, where worker threads and child processes of the
 * tests run it: Node 20 cannot load TypeScript. Takes about a second; files that did not change are not rewritten, so
 * that several test runs may share the folder.
 */
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, writeFile } from "node:fs/promises";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { transform } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));

/** @returns {Promise<string>} the folder that holds the transpiled copy of src/ */
export async function transpileSources() {
  const out = join(root, ".cache/dev");
  const entries = await readdir(join(root, "src"), { recursive: true, withFileTypes: true });
  const results = await Promise.allSettled(
    entries
      .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name) && !/\.(test|test-d)\.tsx?$/.test(entry.name))
      .map(async (entry) => {
        const source = join(entry.parentPath, entry.name);
        const target = join(out, relative(join(root, "src"), source)).replace(/\.tsx?$/, ".js");
        const text = await readFile(source, "utf8");
        const { code } = await transform(text, {
          loader: entry.name.endsWith("x") ? "tsx" : "ts",
          format: "esm",
          target: "node20",
          sourcemap: "inline",
          // Stack traces need places alone; the sources' text would double what every worker and process reads.
          sourcesContent: false,
          sourcefile: source,
        });
        const rewritten = code.replace(/(from\s*|import\s*\(?\s*)"(\.{1,2}\/[^"]+)\.tsx?"/g, '$1"$2.js"');
        if (existsSync(target) && (await readFile(target, "utf8")) === rewritten) return;
        await mkdir(dirname(target), { recursive: true });
        const temporary = `${target}.${process.pid}.tmp`;
        await writeFile(temporary, rewritten);
        await rename(temporary, target);
      }),
  );
  // A file that does not parse fails its own tests; it must not keep every other test from running.
  for (const result of results) if (result.status === "rejected") console.error(String(result.reason));
  return out;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) console.error(await transpileSources());
