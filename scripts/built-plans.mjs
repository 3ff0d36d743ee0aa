/**
 * Writes the plans that come compiled with the package (src/runtime/executor/built-plans.ts), and its WebAssembly, the
 * kernels and the protocol of threads (built-code.ts), beside the executor's modules. They are compiled and proved once for a state of the sources, which takes some
 * three seconds, and kept in .cache/.
 */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const EXECUTOR = "runtime/executor";
const THREADS = "runtime/backends/threads";
/** What plans and code are made of. */
const ROOMS = ["core", "collectives", "authoring", EXECUTOR, "runtime/comm", THREADS];

/**
 * A word that changes with what some folders of src/ hold, tests aside, with `others`, and with the kind of processor.
 * @param {readonly string[]} folders below src/
 * @param {readonly string[]} others paths of files below the root
 */
export async function stateOfSources(folders, others) {
  const hash = createHash("sha256").update(process.arch);
  for (const file of others) hash.update(await readFile(join(root, file)));
  for (const folder of folders) {
    const files = await readdir(join(root, "src", folder), { recursive: true });
    for (const file of files.filter((name) => /(?<!\.test(-d)?)\.tsx?$/.test(name)).sort()) {
      hash.update(file).update(await readFile(join(root, "src", folder, file)));
    }
  }
  return hash.digest("hex").slice(0, 16);
}

/**
 * @param {string} modules a folder of modules as src/ has them, such as dist/: they compile the plans if need be
 * @param {readonly string[]} targets folders such as dist/
 */
export async function writeBuiltPlans(modules, targets) {
  const cache = join(root, ".cache/built-plans", await stateOfSources(ROOMS, ["scripts/built-plans.mjs"]));
  if (!existsSync(cache)) await compilePlans(modules, cache);
  for (const file of await readdir(cache)) {
    const bytes = await readFile(join(cache, file));
    for (const target of targets) await writeChanged(join(target, EXECUTOR, file), bytes);
  }
}

/** Ranks of another test run may be reading the file. */
async function writeChanged(path, bytes) {
  if (existsSync(path) && bytes.equals(await readFile(path))) return;
  const temporary = `${path}.${process.pid}.tmp`;
  await writeFile(temporary, bytes);
  await rename(temporary, path);
}

async function compilePlans(modules, folder) {
  const { builtPlansText } = await import(pathToFileURL(join(modules, EXECUTOR, "library-plans.js")).href);
  const door = await import(pathToFileURL(join(modules, EXECUTOR, "internal.js")).href);
  const { assembleReduce, BUILT_KERNELS_FILE, MOST_BUILT_RANKS, builtPlanFile, builtUses } = door;
  const temporary = `${folder}.${process.pid}.tmp`;
  await mkdir(temporary, { recursive: true });
  for (let ranks = 2; ranks <= MOST_BUILT_RANKS; ranks++) {
    await writeFile(join(temporary, builtPlanFile(ranks)), builtPlansText(ranks, builtUses(ranks)));
  }
  await writeFile(join(temporary, BUILT_KERNELS_FILE), assembleReduce());
  const { assembleProtocol, protocolFile } = await import(pathToFileURL(join(modules, THREADS, "index.js")).href);
  for (const wakes of ["notify", "call"]) {
    await writeFile(join(temporary, protocolFile(wakes)), assembleProtocol(wakes));
  }
  for (const old of await readdir(dirname(folder))) {
    if (!old.endsWith(".tmp")) await rm(join(dirname(folder), old), { recursive: true, force: true });
  }
  // Two runs may be at it: one of them is first.
  await rename(temporary, folder).catch((error) => {
    if (!existsSync(folder)) throw error;
  });
}
