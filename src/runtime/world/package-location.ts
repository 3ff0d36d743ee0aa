/**
 * Where the copy of chorale that is running lies. Worker threads and user modules must load that very copy: dist/ of
 * an installed package, or .cache/dev/ (the transpiled sources) when tests run src/ or their own copy, .cache/unit/. A program that a bundler
 * made has this file within itself: its ranks load the package that is installed beside it.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { UnavailableError } from "../../core/index.ts";

/** Bundles in CommonJS have no `import.meta.url`: their program's file stands for it. */
const here: string =
  (import.meta as { url?: string }).url ?? pathToFileURL(process.argv[1] ?? join(process.cwd(), "bundle.cjs")).href;

/** `createRequire` of node:module, by a name that webpack does not know: it would replace the call by `undefined()`. */
export const requireFrom = process.getBuiltinModule("node:module").createRequire;

/** Folder of the modules of this process: that of the loadable copy, but for tests. */
export const loadedRoot = new URL("../../", here);

/** A file that every loadable copy has. */
const RANK_ENTRY = "runtime/world/rank-entry";

/** Folder of the loadable copy: `.../dist/` or `.../.cache/dev/`. */
export const copyRoot = findCopy();
/** Folder with package.json. */
export const packageRoot = new URL(copyRoot.pathname.endsWith("/.cache/dev/") ? "../../" : "../", copyRoot);

function findCopy(): URL {
  if (here.endsWith(".ts")) return new URL("../../../.cache/dev/", here);
  if (loadedRoot.pathname.endsWith("/.cache/unit/")) return new URL("../dev/", loadedRoot);
  if (existsSync(new URL(`${RANK_ENTRY}.js`, loadedRoot))) return loadedRoot;
  try {
    const installed = requireFrom(here).resolve("chorale/world");
    return new URL("../../", pathToFileURL(installed));
  } catch {
    return loadedRoot;
  }
}

/**
 * URL of a file of the loadable copy that a Worker can run.
 * @param path below src/, without extension: `runtime/world/rank-entry`
 * @throws UnavailableError when the file is not there
 */
export function loadableUrl(path: string): URL {
  const url = new URL(`${path}.js`, copyRoot);
  if (!existsSync(url)) {
    const isCheckout = existsSync(new URL("src/core/index.ts", packageRoot));
    throw new UnavailableError(
      fileURLToPath(url),
      isCheckout
        ? "it was not built"
        : `chorale was bundled into ${fileURLToPath(here)}, without the files of its ranks`,
      isCheckout
        ? "Run npm run build first."
        : 'Mark chorale as external and install it beside the program: esbuild --external:chorale "--external:chorale/*"; webpack and Rollup: externals or external: [/^chorale/].',
    );
  }
  return url;
}

let exportsMap: ReadonlyMap<string, string> | undefined;

/** The entry points of the package (`chorale`, `chorale/mesh`, ...), each with the URL of the running copy's file. */
export function entryPoints(): ReadonlyMap<string, string> {
  if (exportsMap === undefined) {
    const { exports } = JSON.parse(readFileSync(new URL("package.json", packageRoot), "utf8")) as {
      exports: Record<string, { default?: string } | string>;
    };
    const pairs = Object.entries(exports).flatMap(([subpath, target]): [string, string][] => {
      const file = typeof target === "string" ? target : target.default;
      if (file === undefined) return [];
      const base = file.startsWith("./dist/") ? copyRoot : packageRoot;
      return [[`chorale${subpath.slice(1)}`, new URL(file.replace("./dist/", "./"), base).href]];
    });
    exportsMap = new Map(pairs);
  }
  return exportsMap;
}

/** Version of the running copy, as package.json has it. */
export function version(): string {
  const { version } = JSON.parse(readFileSync(new URL("package.json", packageRoot), "utf8")) as { version: string };
  return version;
}
