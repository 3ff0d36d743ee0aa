/**
 * Makes one file, or few, of each room that every rank loads: Node takes about half a millisecond of CPU for each module
 * that it loads, and a rank would load more than a hundred. Rooms import each other through their doors only, so a room's
 * doors keep their places, the files behind them become part of them, and what is imported stays the same object for
 * everybody. Declarations stay as tsc wrote them.
 */
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const src = join(root, "src");
const dist = join(root, "dist");

/** Rooms of a rank's way from its start to its first collective, and of `import "chorale"`. */
const BUNDLED = [
  "core",
  "foreign/nccl",
  "collectives",
  "machine/cost",
  "mesh",
  "authoring/plan",
  "runtime/comm",
  "runtime/memory",
  "runtime/rendezvous",
  "runtime/device",
  "runtime/progress",
  "runtime/executor",
  "runtime/backends/threads",
  "runtime/backends/shm",
  "runtime/backends/tcp",
  "runtime/backends/nccl",
  "runtime/backends/cuda",
];

/** The files of a room, by their paths below src/, without extension. */
const filesOf = (room) =>
  readdirSync(join(src, room), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !/\.test(-d)?\.ts$/.test(file))
    .map((file) => `${room}/${file.replaceAll("\\", "/").replace(/\.ts$/, "")}`);

/** What stays a file of its own: doors, what package.json names, and what is loaded when it is needed. */
function entriesOf(room, files) {
  const named = readFileSync(join(root, "package.json"), "utf8");
  const entries = new Set(files.filter((file) => /^(index|internal)$/.test(file.slice(room.length + 1))));
  for (const file of files) {
    if (named.includes(`"./dist/${file}.js"`)) entries.add(file);
    const text = readFileSync(join(src, `${file}.ts`), "utf8");
    for (const [, path] of text.matchAll(/(?:\bimport|\(import\.meta\.url\)|\bnew URL)\("(\.\/[^"]+)\.[jt]s"[,)]/g)) {
      entries.add(join(dirname(file), path));
    }
  }
  return [...entries];
}

/**
 * esbuild makes `var` of classes and constants at the top of a file, which V8 then reads anew at each use: with `const` a
 * call over NCCL costs 3 % less. Names in capitals are constants all over chorale.
 */
const withConstants = (text) => text.replace(/^var (?=\w+ = class\b|[A-Z][A-Z0-9_]* = )/gm, "const ");

/** A class that names itself is `class _Name` for esbuild, which users would read in errors and in the debugger. */
const withOwnNames = (text) =>
  [...text.matchAll(/^(?:const|var) (\w+) = class _\1\b/gm)].reduce(
    (changed, [, name]) => changed.replace(new RegExp(`\\b_${name}\\b`, "g"), name),
    text,
  );

/** Bundles the rooms of dist/ in place. */
export async function bundleRooms() {
  for (const room of BUNDLED) {
    for (const file of filesOf(room))
      for (const end of [".js", ".js.map"]) rmSync(join(dist, file + end), { force: true });
  }
  const files = await bundledRooms(dist, { sourcemap: "linked", sourcesContent: true });
  for (const { path, text } of files) writeFileSync(path, text);
}

/**
 * The files of the bundled rooms, which are not written.
 * @param {string} out the folder that they are for, such as dist/
 * @param {import("esbuild").BuildOptions} options how to map them to their sources
 * @returns {Promise<{ path: string, text: string }[]>}
 */
export async function bundledRooms(out, options) {
  const rooms = await Promise.all(BUNDLED.map((room) => bundledRoom(room, out, options)));
  return rooms.flat();
}

async function bundledRoom(room, out, options) {
  const entries = entriesOf(room, filesOf(room));
  const folder = join(src, room);
  const nested = entries.find((entry) => dirname(entry) !== room);
  if (nested !== undefined) throw new Error(`${nested} is loaded by itself, but lies deeper than its room's doors`);
  const { outputFiles } = await build({
    entryPoints: entries.map((entry) => join(src, `${entry}.ts`)),
    outdir: join(out, room),
    outbase: folder,
    absWorkingDir: root,
    bundle: true,
    write: false,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "es2023",
    chunkNames: "shared-[hash]",
    logLevel: "warning",
    plugins: [
      {
        name: "other-rooms",
        setup({ onResolve }) {
          onResolve({ filter: /./ }, ({ path, resolveDir, kind }) => {
            if (kind === "entry-point") return undefined;
            if (!path.startsWith(".")) return { path, external: true };
            // All that is written lies beside the doors.
            const fromDoor = relative(folder, resolve(resolveDir, path)).replaceAll("\\", "/");
            return fromDoor.startsWith("..") ? { path: fromDoor.replace(/\.ts$/, ".js"), external: true } : undefined;
          });
        },
      },
    ],
    ...options,
  });
  return outputFiles.map(({ path, text }) => ({
    path,
    text: path.endsWith(".js") ? withOwnNames(withConstants(text)) : text,
  }));
}
