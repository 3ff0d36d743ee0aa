/** Every public function, class and method that `chorale/nccl` and `chorale/device` give has a docstring. */
import ts from "typescript";
import { expect, it } from "vitest";
import { entryDeclarations, isBuilt, unlessBuilt } from "./support/declarations.ts";
import { publicProgram } from "./support/public-names.ts";

const ROOMS = ["chorale/nccl", "chorale/device"];

/** Names of what a room exports, and of its members that others may call, that have no docstring. */
function undocumented(program: ts.Program, entry: string): string[] {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(entry);
  const module = source === undefined ? undefined : checker.getSymbolAtLocation(source);
  if (module === undefined) throw new Error(`${entry} is no module`);
  const has = (node: ts.Node) => ts.getJSDocCommentsAndTags(node).length > 0;
  return checker.getExportsOfModule(module).flatMap((exported) => {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    const [declaration] = symbol.declarations ?? [];
    if (declaration === undefined) return [];
    // The docstring of a constant stands at its statement.
    const missing = has(ts.isVariableDeclaration(declaration) ? declaration.parent.parent : declaration)
      ? []
      : [symbol.name];
    if (!ts.isClassDeclaration(declaration)) return missing;
    const members = declaration.members.filter(
      (member) =>
        ts.isMethodDeclaration(member) &&
        ts.isIdentifier(member.name) &&
        !(ts.getCombinedModifierFlags(member) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) &&
        !has(member),
    );
    return [...missing, ...members.map((member) => `${symbol.name}.${member.name?.getText()}`)];
  });
}

const title = `stand at everything that the nccl and cuda rooms let others call${unlessBuilt}`;
it.skipIf(!isBuilt)(title, { timeout: 90_000 }, () => {
  const entries = ROOMS.map((room) => entryDeclarations.get(room) ?? "");
  expect(entries.flatMap((entry) => undocumented(publicProgram(), entry))).toEqual([]);
});
