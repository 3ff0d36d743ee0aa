/** The sources as the TypeScript compiler sees them, without its library's types: who only asks for names reads them once. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = fileURLToPath(new URL("../..", import.meta.url));
const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  exports: Record<string, { default?: string } | string>;
};

/** The source file of an entry point such as `chorale/mesh`; undefined when there is none. */
export function entryFile(entry: string): string | undefined {
  const target = exports[`.${entry.slice("chorale".length)}`];
  if (typeof target !== "object" || target.default === undefined) return undefined;
  return join(root, target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts"));
}

let program: ts.Program | undefined;

/** The program of all entry points. */
export function sourceProgram(): ts.Program {
  if (program !== undefined) return program;
  const { config } = ts.readConfigFile(join(root, "tsconfig.json"), (path) => readFileSync(path, "utf8"));
  const { options } = ts.parseJsonConfigFileContent(config, ts.sys, root);
  const entries = Object.keys(exports).flatMap((subpath) => entryFile(`chorale${subpath.slice(1)}`) ?? []);
  program = ts.createProgram(entries, { ...options, noLib: true, types: [] });
  return program;
}

/**
 * Looks for what an entry point exports.
 * @param path `Name` or `Name.member`
 * @returns what is missing, in words, or undefined
 */
export function missingName(entry: string, path: string): string | undefined {
  const checker = sourceProgram().getTypeChecker();
  const source = sourceProgram().getSourceFile(entryFile(entry) ?? "");
  const module = source === undefined ? undefined : checker.getSymbolAtLocation(source);
  const [exported = "", member] = path.split(".");
  let symbol = module === undefined ? undefined : checker.tryGetMemberInModuleExports(exported, module);
  if (symbol !== undefined && symbol.flags & ts.SymbolFlags.Alias) symbol = checker.getAliasedSymbol(symbol);
  if (symbol === undefined) return `${entry} does not export ${exported}`;
  if (member === undefined) return undefined;
  return checker.getPropertyOfType(checker.getDeclaredTypeOfSymbol(symbol), member) === undefined
    ? `${exported} has no member ${member}`
    : undefined;
}
