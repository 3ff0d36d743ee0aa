/**
 * Loads a user's TypeScript or JavaScript file on Node 20, which cannot run TypeScript: esbuild bundles the user's own
 * files into one module, with source maps so that stack traces name the user's lines. `chorale` and `chorale/*` mean
 * the copy of chorale that is running, other packages are resolved from the user's file and loaded as Node would.
 * A dynamic `import()` of a computed path is left as it is and is not resolved from the user's file.
 */
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { builtinModules } from "node:module";
import { tmpdir } from "node:os";
import { dirname, extname, isAbsolute, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import type { BuildFailure, BuildOptions, Loader, Metafile, Plugin } from "esbuild";
import { FormatError, InvalidArgumentError, UnavailableError } from "../../core/index.ts";
import { ownName, removeOrphans } from "../memory/index.ts";
import { copyRoot, entryPoints, packageRoot } from "./location.ts";

/** A user's file, made loadable. */
export interface UserModule {
  /** Absolute path of the user's file. */
  readonly path: string;
  /** What Node can import. */
  readonly url: string;
  /** The user's files that were bundled, absolute paths. */
  readonly inputs: readonly string[];
}

const LOADERS: Readonly<Record<string, Loader>> = {
  ".ts": "ts",
  ".mts": "ts",
  ".cts": "ts",
  ".tsx": "tsx",
  ".js": "js",
  ".mjs": "js",
  ".cjs": "js",
  ".jsx": "jsx",
};
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
  if (stamp(path) === undefined) throw new InvalidArgumentError(argument, path, "a file that exists");
  if (LOADERS[extname(path)] === undefined) {
    throw new InvalidArgumentError(argument, path, `a file that ends in ${Object.keys(LOADERS).join(", ")}`);
  }
  if (runningCopyOf(path) === pathToFileURL(path).href) return { path, url: pathToFileURL(path).href, inputs: [path] };
  const cached = cache.get(path);
  if (cached !== undefined && [...cached.stamps].every(([input, seen]) => stamp(input) === seen)) return cached.module;

  const result = await bundle(path, { entryPoints: [path], absWorkingDir: dirname(path) });
  const inputs = Object.keys(result.metafile.inputs).map((input) => resolve(dirname(path), input));
  const module: UserModule = { path, url: writeModule(result.code), inputs };
  cache.set(path, { module, stamps: new Map(inputs.map((input) => [input, stamp(input) ?? ""])) });
  return module;
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

/** What stands for the path of a function that was sent as text. */
const FUNCTION_PATH = "run.mjs";
const functions = new Map<string, Promise<UserModule>>();

/**
 * Makes a module whose default export is the function of this text. Its imports are resolved from the current folder.
 * @throws FormatError when the text is not that of a function, such as of a method or of a built-in
 */
export function bundleFunction(source: string): Promise<UserModule> {
  let made = functions.get(source);
  if (made === undefined) {
    // Test runners built on Vite rename the dynamic import, and make its path relative to their root.
    const text = source.replace(/__vite_ssr_dynamic_import__\((["'])(\/[^"']*)?/g, (_, quote: string, path = "") => {
      const isAbsolute = path === "" || existsSync(path);
      return `import(${quote}${isAbsolute ? path : join(process.cwd(), path)}`;
    });
    const stdin = { contents: `export default (${text});`, resolveDir: process.cwd(), sourcefile: FUNCTION_PATH };
    made = bundle(FUNCTION_PATH, { stdin }).then(({ code }) => ({
      path: FUNCTION_PATH,
      url: writeModule(code),
      inputs: [],
    }));
    functions.set(source, made);
    // The reason may be gone the next time.
    made.catch(() => functions.delete(source));
  }
  return made;
}

async function bundle(path: string, entry: BuildOptions): Promise<{ code: Uint8Array; metafile: Metafile }> {
  const { build } = await import("esbuild");
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
      plugins: [userFiles],
    });
    return { code: outputFiles[0]?.contents ?? new Uint8Array(), metafile };
  } catch (error) {
    throw syntaxError(path, error);
  }
}

function writeModule(code: Uint8Array): string {
  const output = join(scratchFolder(), `module-${++counter}.mjs`);
  writeFileSync(output, code);
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

const userFiles: Plugin = {
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
          : { path: url, external: true };
      }
      const found = await build.resolve(path, { importer, resolveDir, kind, pluginData: resolving });
      if (found.errors.length > 0) return { errors: found.errors };
      if (found.external) return found;
      const own = runningCopyOf(found.path);
      if (own !== undefined) return { path: own, external: true };
      // Files of the user's own are bundled, wherever they lie; so is TypeScript of a package, which Node cannot load.
      const isPackage = !/^[./]/.test(path) && !isAbsolute(path) && /[\\/]node_modules[\\/]/.test(found.path);
      if (!isPackage || /\.([mc]?ts|[jt]sx)$/.test(found.path)) return found;
      return { path: pathToFileURL(found.path).href, external: true };
    });
    // A bundled file keeps its own import.meta.url, so that it finds the files beside it.
    build.onLoad({ filter: /\.[mc]?[jt]sx?$/ }, async ({ path }) => {
      const contents = await readFile(path, "utf8");
      const loader = LOADERS[extname(path)] ?? "js";
      if (!contents.includes("import.meta")) return { contents, loader };
      const { code } = await build.esbuild.transform(contents, {
        loader,
        target: "node20",
        sourcemap: "inline",
        sourcefile: path,
        define: {
          "import.meta.url": JSON.stringify(pathToFileURL(path).href),
          "import.meta.filename": JSON.stringify(path),
          "import.meta.dirname": JSON.stringify(dirname(path)),
        },
      });
      return { contents: code, loader: "js" };
    });
  },
};
const resolving = Symbol("resolving");

/**
 * The running copy's file of what is chorale's own, in the source or as loaded: those are never bundled, or their
 * classes would exist twice.
 */
function runningCopyOf(path: string): string | undefined {
  const copy = fileURLToPath(copyRoot);
  if (path.startsWith(copy)) return pathToFileURL(path).href;
  const sources = fileURLToPath(new URL("src/", packageRoot));
  if (!path.startsWith(sources)) return undefined;
  return new URL(path.slice(sources.length).replace(/\.tsx?$/, ".js"), copyRoot).href;
}

function stamp(path: string): string | undefined {
  const stat = statSync(path, { throwIfNoEntry: false });
  return stat?.isFile() ? `${stat.mtimeMs} ${stat.size}` : undefined;
}

function scratchFolder(): string {
  if (folder === undefined) {
    const parent = tmpdir();
    let made: string;
    try {
      removeOrphans(parent, FOLDER_KIND, (file) => file.isDirectory());
      made = mkdtempSync(join(parent, ownName(FOLDER_KIND, "")));
    } catch (cause) {
      const how = "Set TMPDIR to a folder that exists and that you may write.";
      throw new UnavailableError("a folder for bundled modules", (cause as Error).message, how, { cause });
    }
    folder = made;
    process.once("exit", () => rmSync(made, { recursive: true, force: true }));
  }
  return folder;
}

function syntaxError(path: string, error: unknown): unknown {
  const first = (error as Partial<BuildFailure> | undefined)?.errors?.[0];
  if (first === undefined) return error;
  const at = first.location;
  const where = at === null ? path : `${resolve(dirname(path), at.file)}:${at.line}:${at.column + 1}`;
  const line = at === null ? "" : `\n    ${at.lineText.trim()}`;
  return new FormatError(where, `${first.text}${line}`, { cause: error });
}
