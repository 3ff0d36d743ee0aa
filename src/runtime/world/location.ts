/**
 * Where the copy of chorale that is running lies. Worker threads and user modules must load that very copy: dist/ of
 * an installed package, or .cache/dev/ (the transpiled sources) when tests run src/ directly.
 */
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { UnavailableError } from "../../core/index.ts";

const here = import.meta.url;
const runsFromSource = here.endsWith(".ts");

/** Folder of the loadable copy: `.../dist/` or `.../.cache/dev/`. */
export const copyRoot = runsFromSource ? new URL("../../../.cache/dev/", here) : new URL("../../", here);
/** Folder with package.json. */
export const packageRoot = new URL(copyRoot.pathname.endsWith("/.cache/dev/") ? "../../" : "../", copyRoot);

/**
 * URL of a file of the loadable copy that a Worker can run.
 * @param path below src/, without extension: `runtime/world/rank-entry`
 * @throws UnavailableError when the file was not built
 */
export function loadableUrl(path: string): URL {
  const url = new URL(`${path}.js`, copyRoot);
  if (!existsSync(url)) {
    throw new UnavailableError(fileURLToPath(url), "it was not built", "Run npm run build first.");
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
