/**
 * Makes one file, or few, of each room: Node takes 0.5 to 1 ms of CPU for each module that it loads, and a rank would load
 * 150. What each rank needs of many rooms is in three files of runtime/shared/, and nothing else is. Rooms import each other
 * through their doors only, so a room's doors keep their places, the files behind them become part of them or of a shared
 * one, and what is imported stays the same object for everybody. Declarations stay as tsc wrote them.
 */
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const src = join(root, "src");
const dist = join(root, "dist");

/** All rooms but the commands', whose files are loaded by themselves. */
const BUNDLED = JSON.parse(readFileSync(new URL("rooms.json", import.meta.url), "utf8")).filter(
  (room) => !room.startsWith("apps/"),
);

/** Files of what these load at once, of any room, each without what is in those before it. */
const SHARED = {
  core: ["core/index", "core/internal"],
  rank: ["runtime/world/rank-entry", "runtime/comm/index", "foreign/native/koffi", "foreign/native/affinity"],
  threads: ["runtime/backends/threads/internal", "runtime/backends/threads/backend"],
};
/** Among the runtime's folders: frames of these files are not the caller's. */
const sharedFile = (name) => `runtime/shared/${name}`;

/** Begins a path below src/ in a bundle: it is written as it is seen from the bundle's place. */
const FROM_SRC = "from-src:";

/** How esbuild calls what it is given as text. */
const STDIN = "<stdin>";

const isBundled = (file) => BUNDLED.some((room) => file.startsWith(`${room}/`));
const isDoor = (file) => /\/(index|internal)$/.test(file);
const posix = (path) => path.replaceAll("\\", "/");
/** The path below src/ of what a file of `folder` names, without extension. */
const below = (folder, path) => posix(relative(src, resolve(folder, path))).replace(/\.[jt]s$/, "");

function memoized(of) {
  const known = new Map();
  return (key) => {
    if (!known.has(key)) known.set(key, of(key));
    return known.get(key);
  };
}

/** The files of a room, by their paths below src/, without extension. */
const filesOf = (room) =>
  readdirSync(join(src, room), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !/\.test(-d)?\.ts$/.test(file))
    .map((file) => `${room}/${posix(file).replace(/\.ts$/, "")}`);

/** What package.json and the benchmarks say of dist/. */
const named = [
  "package.json",
  ...readdirSync(join(root, "bench"))
    .filter((file) => file.endsWith(".mjs"))
    .map((file) => `bench/${file}`),
]
  .map((file) => readFileSync(join(root, file), "utf8"))
  .join();

/** What stays a file of its own: doors, what is named elsewhere, and what is loaded when it is needed. */
function entriesOf(room, files) {
  const entries = new Set(files.filter(isDoor));
  for (const file of files) {
    if (named.includes(`/dist/${file}.js"`)) entries.add(file);
    const text = readFileSync(join(src, `${file}.ts`), "utf8");
    for (const [, path] of text.matchAll(/(?:\bimport|\(import\.meta\.url\)|\bnew URL)\("(\.\/[^"]+)\.[jt]s"[,)]/g)) {
      entries.add(posix(join(dirname(file), path)));
    }
    for (const [, path] of text.matchAll(/\bloadableUrl\("([^"]+)"\)/g)) {
      if (path.startsWith(`${room}/`)) entries.add(path);
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
  for (const { path, text } of files) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, text);
  }
}

/**
 * The files of the bundled rooms, which are not written.
 * @param {string} out the folder that they are for, such as dist/
 * @param {import("esbuild").BuildOptions} options how to map them to their sources
 * @returns {Promise<{ path: string, text: string }[]>}
 */
export async function bundledRooms(out, options) {
  const entries = new Map(BUNDLED.map((room) => [room, entriesOf(room, filesOf(room))]));
  const own = new Set([...entries.values()].flat());
  /** The shared file that a file of src/ is part of. */
  const sharedOf = new Map();
  const bundles = [];
  for (const name of Object.keys(SHARED)) bundles.push(await sharedBundle(name, own, sharedOf, out, options));
  for (const [room, files] of entries) bundles.push(roomBundle(room, files, sharedOf, out, options));
  const results = await Promise.all(bundles);
  const places = new Map();
  for (const [path, { inputs }] of results.flatMap(({ metafile }) => Object.entries(metafile.outputs))) {
    for (const file of Object.keys(inputs).filter((input) => inputs[input].bytesInOutput > 0 && input !== STDIN)) {
      if (places.has(file)) throw new Error(`${file} would exist twice: in ${places.get(file)} and ${path}`);
      places.set(file, path);
    }
  }
  return results.flatMap(({ outputFiles }) =>
    outputFiles.map((file) => ({ path: file.path, text: placed(file, out) })),
  );
}

/** What the roots of a shared file load at once, without what stays a file of its own or is in a shared file already. */
async function sharedBundle(name, own, sharedOf, out, options) {
  const placeOf = (file, importer, kind) => {
    if (kind === "dynamic-import" || !isBundled(file)) return file;
    return own.has(file) && !isDoor(file) && importer !== STDIN ? file : undefined;
  };
  let contents = SHARED[name].map((file, i) => `import * as m${i} from "./${file}.ts"; console.log(m${i});`).join("");
  for (let numFiles = 0; ; ) {
    const outfile = join(out, `${sharedFile(name)}.js`);
    const result = await bundle({ stdin: { contents, resolveDir: src }, outfile, ...options }, placeOf, sharedOf);
    const inputs = Object.values(result.metafile.outputs).flatMap(({ inputs }) => Object.entries(inputs));
    const files = inputs
      .filter(([path, { bytesInOutput }]) => bytesInOutput > 0 && path !== STDIN)
      .map(([path]) => below(root, path))
      .filter((file) => !own.has(file));
    // What is exported of a file may need more than what the roots import of it.
    if (files.length === numFiles) {
      for (const file of files) sharedOf.set(file, name);
      checkNames(files);
      return result;
    }
    numFiles = files.length;
    contents = files.map((file) => `export * from "./${file}.ts";`).join("\n");
  }
}

/** `export *` leaves out what two files export. */
function checkNames(files) {
  const owners = new Map();
  for (const file of files) {
    const text = readFileSync(join(src, `${file}.ts`), "utf8");
    for (const [, name] of text.matchAll(/^export (?:async )?(?:abstract )?(?:function\*?|class|const|let) (\w+)/gm)) {
      if (owners.has(name)) throw new Error(`${owners.get(name)} and ${file}, which are bundled, both export ${name}`);
      owners.set(name, file);
    }
  }
}

function roomBundle(room, entries, sharedOf, out, options) {
  return bundle(
    {
      entryPoints: entries.map((entry) => join(src, `${entry}.ts`)),
      outdir: join(out, room),
      outbase: join(src, room),
      splitting: true,
      chunkNames: "shared-[hash]",
      ...options,
    },
    (file) => (file.startsWith(`${room}/`) ? undefined : file),
    sharedOf,
  );
}

/**
 * Bundles files of src/. `placeOf` names what is imported from where it comes to lie, and returns undefined for what becomes
 * part of the bundle.
 */
function bundle(options, placeOf, sharedOf) {
  return build({
    absWorkingDir: root,
    bundle: true,
    write: false,
    metafile: true,
    format: "esm",
    platform: "node",
    target: "es2023",
    logLevel: "warning",
    plugins: [
      {
        name: "places-of-files",
        setup({ onResolve, onLoad }) {
          onResolve({ filter: /./ }, ({ path, importer, resolveDir, kind }) => {
            if (kind === "entry-point") return undefined;
            if (!path.startsWith(".")) return { path, external: true };
            const file = below(resolveDir, path);
            const shared = sharedOf.get(file);
            const from = importer === STDIN ? STDIN : below(root, importer);
            const place = shared === undefined ? placeOf(file, from, kind) : sharedFile(shared);
            return place === undefined
              ? undefined
              : { path: `${FROM_SRC}${place}.js`, external: true, sideEffects: false };
          });
          // What a file finds beside itself, it finds from the bundle.
          onLoad({ filter: /\.ts$/ }, ({ path }) => {
            const isKnown = (file) =>
              sharedOf.has(file) || placeOf(file, below(root, path), "import-statement") === undefined;
            const text = throughDoors(readFileSync(path, "utf8"), dirname(path), isKnown);
            const contents = text.replace(/^.*\bimport\.meta\.url\b.*$/gm, (line) =>
              line.replace(/"(\.[./][^"]*|\.)"/g, (_, place) => {
                const beside = posix(relative(src, resolve(dirname(path), place)));
                return `"${FROM_SRC}${beside}${/\.\/?$/.test(place) ? "/" : ""}"`;
              }),
            );
            return { contents, loader: "ts" };
          });
        },
      },
    ],
    ...options,
  });
}

const NAMED = /^(import|export) (?:(type )?)\{([^}]*)\} from "(\.[^"]+)\.ts";/gm;
const namesIn = (list) =>
  list
    .replace(/\/\/.*|\/\*.*?\*\//g, "")
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "" && !name.startsWith("type "));

/** The files that a door has its names from. */
const originsOf = memoized((door) => {
  const origins = new Map();
  for (const [, , isType, names, path] of readFileSync(join(src, `${door}.ts`), "utf8").matchAll(NAMED)) {
    const file = below(join(src, dirname(door)), path);
    if (!isType) for (const name of namesIn(names)) origins.set(name, isDoor(file) ? originsOf(file).get(name) : file);
  }
  return origins;
});

/** Imports what comes through a door from the file that has it, where that `isKnown`. Lines stay as they are. */
function throughDoors(text, folder, isKnown) {
  return text.replace(NAMED, (whole, word, isType, list, path) => {
    const door = below(folder, path);
    if (isType || word === "export" || !isDoor(door)) return whole;
    const imports = namesIn(list).map((name) => {
      const origin = originsOf(door).get(name.split(" as ")[0]);
      const from = origin !== undefined && isKnown(origin) ? relative(folder, join(src, origin)) : path;
      return `import { ${name} } from "${from.startsWith(".") ? from : `./${from}`}.ts";`;
    });
    return imports.join(" ") + whole.replace(/[^\n]/g, "");
  });
}

/** An output file's text with paths as its place needs them, and names as the sources have them. */
function placed({ path, text }, out) {
  if (!path.endsWith(".js")) return text;
  const located = text.replace(new RegExp(`"${FROM_SRC}([^"]*)"`, "g"), (_, place) => {
    const seen = posix(relative(dirname(path), join(out, place))) || ".";
    return `"${seen.startsWith(".") ? seen : `./${seen}`}${place.endsWith("/") ? "/" : ""}"`;
  });
  return withOwnNames(withConstants(located));
}
