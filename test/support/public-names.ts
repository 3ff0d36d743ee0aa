/** The public surface as the TypeScript compiler sees its declarations, without its library's types: who only asks for names reads them once. */
import ts from "typescript";
import { compilerOptions, entryDeclarations } from "./declarations.ts";

let program: ts.Program | undefined;

/** The program of all entry points. */
export function publicProgram(): ts.Program {
  program ??= ts.createProgram([...entryDeclarations.values()], { ...compilerOptions(), noLib: true, types: [] });
  return program;
}

/**
 * Looks for what an entry point exports.
 * @param path `Name` or `Name.member`
 * @returns what is missing, in words, or undefined
 */
export function missingName(entry: string, path: string): string | undefined {
  const checker = publicProgram().getTypeChecker();
  const source = publicProgram().getSourceFile(entryDeclarations.get(entry) ?? "");
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
