/**
 * Loads a user's TypeScript or JavaScript file on Node 20, which cannot run TypeScript: esbuild bundles the user's own
 * files into one module, with source maps so that stack traces name the user's lines. `chorale` and `chorale/*` mean
 * the copy of chorale that is running, other packages are resolved from the user's file and loaded as Node would.
 * A dynamic `import()` of a computed path is left as it is and is not resolved from the user's file.
 * Newer Nodes strip types by themselves, which is not used: the first such import takes 110 ms in every rank's thread, and
 * bundling takes 25 ms once for all (Node 24 and 26, a small program); it also lacks tsx, and enums.
 */
import { closeSync, existsSync, openSync, statSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { builtinModules } from "node:module";
import { devNull, tmpdir } from "node:os";
import { dirname, extname, isAbsolute, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type * as Esbuild from "esbuild";
import type { BuildFailure, BuildOptions, ImportKind, Loader, Location, Metafile, Plugin } from "esbuild";
import { FormatError, InvalidArgumentError, UnavailableError, wordTable } from "../../core/index.ts";
import { makeOwnFolder } from "../memory/index.ts";
import { copyRoot, entryPoints, loadedRoot, packageRoot, requireFrom } from "./package-location.ts";

/** A user's file, made loadable. */
export interface UserModule {
  /** Absolute path of the user's file. */
  readonly path: string;
  /** What Node can import. */
  readonly url: string;
  /** The user's files that were bundled, absolute paths. */
  readonly inputs: readonly string[];
  /** Its default export is what the user's file assigned to `module.exports`. */
  readonly isCommonJs: boolean;
}

const LOADERS: Readonly<Record<string, Loader>> = wordTable({
  ".ts": "ts",
  ".mts": "ts",
  ".cts": "ts",
  ".tsx": "tsx",
  ".js": "js",
  ".mjs": "js",
  ".cjs": "js",
  ".jsx": "jsx",
});
const BUILTINS = new Set(builtinModules);

interface CacheEntry {
  readonly module: UserModule;
  readonly stamps: ReadonlyMap<string, string>;
}
const cache = new Map<string, CacheEntry>();
/** Begins the name of a process's folder of bundled modules. */
const FOLDER_KIND = "chorale-modules";
let folder: string | undefined;
let counter = 0;

/**
 * Bundles a user's file into a module that this process and its worker threads can import. The result lives as long as
 * the process; it is made anew when one of the bundled files changes.
 * @throws InvalidArgumentError when there is no such file, or it is not TypeScript or JavaScript
 * @throws FormatError with file, line and column when it, or what it imports, does not parse or resolve
 */
export async function bundleUserModule(file: string | URL, argument = "module"): Promise<UserModule> {
  const path = pathOf(file, argument);
  if (stamp(path) === undefined) {
    const accepted = existsSync(path) ? "a regular file; this is a folder or a special file" : "a file that exists";
    throw new InvalidArgumentError(argument, path, accepted);
  }
  if (LOADERS[extname(path)] === undefined) {
    throw new InvalidArgumentError(argument, path, `a file that ends in ${Object.keys(LOADERS).join(", ")}`);
  }
  if (runningCopyOf(path) === pathToFileURL(path).href)
    return { path, url: pathToFileURL(path).href, inputs: [path], isCommonJs: false };
  const cached = cache.get(path);
  if (cached !== undefined && [...cached.stamps].every(([input, seen]) => stamp(input) === seen)) return cached.module;

  const folder = dirname(path);
  const { code, metafile } = await bundle(
    path,
    { entryPoints: [path], absWorkingDir: folder },
    ({ file, line, column }) => `${resolve(folder, file)}:${line}:${column + 1}`,
  );
  const files = Object.entries(metafile.inputs);
  const inputs = files.map(([input]) => resolve(folder, input));
  const isCommonJs = files.some(([input, { format }]) => resolve(folder, input) === path && format === "cjs");
  const module: UserModule = {
    path,
    url: writeModule(withRequire(code, path)),
    inputs,
    isCommonJs,
  };
  watchFiles(inputs);
  cache.set(path, { module, stamps: new Map(inputs.map((input) => [input, stamp(input) ?? ""])) });
  return module;
}

/** Has `node --watch` watch files that this process reads, but does not load itself. */
function watchFiles(paths: readonly string[]): void {
  if (process.env.WATCH_REPORT_DEPENDENCIES !== undefined) process.send?.({ "watch:require": paths });
}

function pathOf(file: string | URL, argument: string): string {
  const text = String(file);
  try {
    if (text.includes("\0")) throw new TypeError("no path holds a null byte");
    return resolve(file instanceof URL || text.startsWith("file:") ? fileURLToPath(file) : text);
  } catch (cause) {
    throw new InvalidArgumentError(argument, text, "a path, or a file: URL", { cause });
  }
}

/** As the package has it: also where a program was bundled, or where packages do not see each other's dependencies. */
function loadEsbuild(): typeof Esbuild {
  return requireFrom(new URL("package.json", packageRoot))("esbuild") as typeof Esbuild;
}

/**
 * Bundles user code into one ECMAScript module. `path` is its file, or what errors call it; `placeOf` says where an error is.
 * @throws FormatError when it does not parse, or when what it imports is not found
 */
export async function bundle(
  path: string,
  entry: BuildOptions,
  placeOf: (location: Location) => string,
): Promise<{ code: Uint8Array; metafile: Metafile }> {
  checkDescriptors(path);
  const { build } = loadEsbuild();
  try {
    const { outputFiles, metafile } = await build({
      ...entry,
      bundle: true,
      write: false,
      metafile: true,
      format: "esm",
      platform: "node",
      target: "node20",
      conditions: [],
      mainFields: ["main"],
      sourcemap: "inline",
      sourcesContent: true,
      outfile: join(scratchFolder(), "module.mjs"),
      logLevel: "silent",
      plugins: [userFiles(path)],
    });
    return { code: outputFiles[0]?.contents ?? new Uint8Array(), metafile };
  } catch (error) {
    throw syntaxError(path, placeOf, error);
  }
}

/** Writes a module where this process and its ranks can import it. @returns its URL */
export function writeModule(code: Uint8Array | string): string {
  const output = join(scratchFolder(), `module-${++counter}.mjs`);
  try {
    writeFileSync(output, code);
  } catch (cause) {
    const need = `room for ${code.length} bytes of a bundled module in ${dirname(output)}`;
    throw new UnavailableError(need, (cause as Error).message, "Free space there, or set TMPDIR to another folder.", {
      cause,
    });
  }
  return pathToFileURL(output).href;
}

/**
 * Imports a user's TypeScript or JavaScript file into this thread. Stack traces name the user's files and lines.
 * @throws InvalidArgumentError, FormatError as `bundleUserModule`; and what the module itself throws
 */
export async function importUserModule(file: string | URL, argument = "module"): Promise<Record<string, unknown>> {
  const module = await bundleUserModule(file, argument);
  process.setSourceMapsEnabled(true);
  return (await import(module.url)) as Record<string, unknown>;
}

const userFiles = (entry: string): Plugin => ({
  name: "chorale-user-files",
  setup(build) {
    build.onResolve({ filter: /./ }, async ({ path, importer, resolveDir, kind, pluginData }) => {
      if (kind === "entry-point" || pluginData === resolving) return undefined;
      if (path.startsWith("node:") || BUILTINS.has(path)) return { path, external: true };
      if (path === "chorale" || path.startsWith("chorale/")) {
        const url = entryPoints().get(path);
        const names = [...entryPoints().keys()].join(", ");
        return url === undefined
          ? { errors: [{ text: `chorale has no entry point ${path}; there are ${names}` }] }
          : { path: locatorFor(kind, url), external: true };
      }
      const found = await build.resolve(path, { importer, resolveDir, kind, pluginData: resolving });
      if (found.errors.length > 0) {
        const shared = OFFERED.has(path.split("/")[0] ?? "") ? ownPackage(path) : undefined;
        return shared === undefined ? { errors: found.errors } : { path: locatorFor(kind, shared), external: true };
      }
      if (found.external) return found;
      const own = runningCopyOf(found.path);
      if (own !== undefined) return { path: locatorFor(kind, own), external: true };
      if (found.path.endsWith(".node"))
        return { path: locatorFor(kind, pathToFileURL(found.path).href), external: true };
      // Files of the user's own are bundled, wherever they lie; so is TypeScript of a package, which Node cannot load.
      const isPackage = !/^[./]/.test(path) && !isAbsolute(path) && /[\\/]node_modules[\\/]/.test(found.path);
      if (!isPackage || /\.([mc]?ts|[jt]sx)$/.test(found.path)) return found;
      return { path: locatorFor(kind, pathToFileURL(found.path).href), external: true };
    });
    // A bundled file keeps what says where it lies, so that it finds the files beside it.
    build.onLoad({ filter: /\.[mc]?[jt]sx?$/ }, async ({ path }) => {
      const contents = await readFile(path, "utf8");
      const loader = LOADERS[extname(path)] ?? "js";
      if (!/import\.meta|__filename|__dirname|require\.main/.test(contents)) return { contents, loader };
      const { code } = await build.esbuild.transform(contents, {
        loader,
        target: "node20",
        sourcemap: "inline",
        sourcefile: path,
        define: {
          "import.meta.url": JSON.stringify(pathToFileURL(path).href),
          "import.meta.filename": JSON.stringify(path),
          "import.meta.dirname": JSON.stringify(dirname(path)),
          __filename: JSON.stringify(path),
          __dirname: JSON.stringify(dirname(path)),
          "require.main": path === entry ? "module" : "undefined",
        },
      });
      return { contents: code, loader: "js" };
    });
  },
});
const resolving = Symbol("resolving");

/**
 * Packages that a user's file may import though they are not installed where it lies: chorale's own copy serves. The schema
 * `args` of a program is written with zod, and a file that is tried out in any folder has no node_modules.
 */
const OFFERED: ReadonlySet<string> = new Set(["zod"]);

/** URL of a package's file as chorale itself finds it. */
function ownPackage(path: string): string | undefined {
  try {
    return pathToFileURL(requireFrom(new URL("package.json", packageRoot)).resolve(path)).href;
  } catch {
    return undefined;
  }
}

/** What names a file outside of the bundle: `import` wants a URL, and `require` a path. */
function locatorFor(kind: ImportKind, url: string): string {
  return kind.startsWith("require-") ? fileURLToPath(url) : url;
}

/**
 * Gives the CommonJS files of a bundle the `require` that esbuild's own calls for what is not bundled; it then renames a
 * `require` that a user's file declares. On the first line: source maps count lines.
 */
function withRequire(code: Uint8Array, path: string): Uint8Array | string {
  const text = Buffer.from(code).toString();
  if (!text.includes("var __require = ")) return code;
  const from = JSON.stringify(pathToFileURL(path).href);
  return `import { createRequire as makeRequire } from "node:module"; const require = makeRequire(${from}); ${text}`;
}

/**
 * The running copy's file of what is chorale's own, in the source or as loaded: those are never bundled, or their
 * classes would exist twice.
 */
function runningCopyOf(path: string): string | undefined {
  const folders = [copyRoot, loadedRoot, new URL("src/", packageRoot)].map((folder) => fileURLToPath(folder));
  const folder = folders.find((folder) => path.startsWith(folder));
  if (folder === undefined) return undefined;
  return new URL(path.slice(folder.length).replace(/\.tsx?$/, ".js"), copyRoot).href;
}

function stamp(path: string): string | undefined {
  try {
    const stat = statSync(path);
    return stat.isFile() ? `${stat.mtimeMs} ${stat.size}` : undefined;
  } catch {
    // Nothing is there, or what is there cannot be looked at.
    return undefined;
  }
}

function scratchFolder(): string {
  if (folder === undefined) {
    folder = makeOwnFolder(tmpdir(), FOLDER_KIND, "bundled modules");
  }
  return folder;
}

/** Descriptors with which esbuild starts its process and reads a file. */
const NEEDED_DESCRIPTORS = 12;
let hasDescriptors = false;

/** esbuild ends the process when its own cannot be started: asked here, before the first time. @throws UnavailableError */
function checkDescriptors(path: string): void {
  if (hasDescriptors) return;
  const opened: number[] = [];
  try {
    while (opened.length < NEEDED_DESCRIPTORS) opened.push(openSync(devNull, "r"));
    hasDescriptors = true;
  } catch (error) {
    throw lackOfDescriptors(path, (error as Error).message, error);
  } finally {
    for (const fd of opened) closeSync(fd);
  }
}

function lackOfDescriptors(path: string, why: string, cause: unknown): UnavailableError {
  const how = "Raise the limit of open files, such as by ulimit -n 1024.";
  return new UnavailableError(`what it takes to bundle ${path}`, why, how, { cause });
}

function syntaxError(path: string, placeOf: (location: Location) => string, error: unknown): unknown {
  const first = (error as Partial<BuildFailure> | undefined)?.errors?.[0];
  if (first === undefined) return error;
  if (/^E[MN]FILE\b/.test(first.text)) return lackOfDescriptors(path, first.text, error);
  const at = first.location;
  const line = at === null ? "" : `\n    ${at.lineText.trim()}`;
  return new FormatError(at === null ? path : placeOf(at), `${first.text}${line}`, { cause: error });
}
