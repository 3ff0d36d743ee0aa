/**
 * The declarations in dist/, as a user's compiler reads them. Tests that ask the TypeScript compiler about the public
 * surface read these: it takes a fraction of the time that the sources take, whose every type it would have to infer.
 */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = fileURLToPath(new URL("../..", import.meta.url));
const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  exports: Record<string, { types?: string } | string>;
};

export const isBuilt = existsSync(join(root, "dist/index.d.ts"));
/** Ends the name of a test that needs dist/. */
export const unlessBuilt = isBuilt ? "" : " (needs npm run build)";

/** The declarations of each entry point, by names such as `chorale/mesh`. */
export const entryDeclarations: ReadonlyMap<string, string> = new Map(
  Object.entries(exports).flatMap(([subpath, target]) =>
    typeof target === "string" || target.types === undefined
      ? []
      : [[`chorale${subpath.slice(1)}`, join(root, target.types)] as const],
  ),
);

/** The declarations of a file such as `src/core/units.ts`. */
export function declarationsOf(file: string): string {
  return join(root, file.replace(/^src\//, "dist/").replace(/\.ts$/, ".d.ts"));
}

/** The project's compiler options, by which `chorale` and `chorale/mesh` mean their declarations. */
export function compilerOptions(): ts.CompilerOptions {
  const { config } = ts.readConfigFile(join(root, "tsconfig.json"), ts.sys.readFile) as { config: unknown };
  return {
    ...ts.parseJsonConfigFileContent(config, ts.sys, root).options,
    // What an example or a case does not use is no mistake: it shows.
    noUnusedLocals: false,
    noUnusedParameters: false,
    rewriteRelativeImportExtensions: false,
    paths: Object.fromEntries([...entryDeclarations].map(([name, path]) => [name, [path]])),
  };
}
