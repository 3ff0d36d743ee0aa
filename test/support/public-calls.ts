/** What a room lets others call, read from its barrel by the TypeScript compiler, and what a program calls of it. */
import ts from "typescript";

/** Where a function or method stands, by which the same one is known again. */
type Place = ts.Declaration;

const isHidden = (declaration: ts.Declaration) =>
  (ts.getCombinedModifierFlags(declaration) & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected)) !== 0;

const isFunction = (declaration: ts.Declaration | undefined): declaration is ts.Declaration =>
  declaration !== undefined &&
  (ts.isFunctionDeclaration(declaration) ||
    ts.isMethodDeclaration(declaration) ||
    ((ts.isVariableDeclaration(declaration) || ts.isPropertyDeclaration(declaration)) &&
      declaration.initializer !== undefined &&
      (ts.isArrowFunction(declaration.initializer) || ts.isFunctionExpression(declaration.initializer))));

/** Methods of a class, static ones and inherited ones too, that are not private, protected or named by a symbol. */
function methodsOf(checker: ts.TypeChecker, symbol: ts.Symbol, isOurs: (file: string) => boolean): ts.Symbol[] {
  const members = [
    ...checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(symbol)),
    ...[...(symbol.exports ?? [])].map(([, member]) => member),
  ];
  return members.filter(({ name, declarations: [declaration] = [] }) => {
    if (!isFunction(declaration) || isHidden(declaration)) return false;
    return !/^(__@|#)/.test(name) && isOurs(declaration.getSourceFile().fileName);
  });
}

/**
 * Lists the functions that a barrel exports (`loadNccl`) and the methods of its classes (`MemoryPool.trim`).
 * @throws an Error when the program has no such module
 */
export function publicFunctions(
  program: ts.Program,
  entry: string,
  isOurs: (file: string) => boolean,
): Map<string, Place> {
  const checker = program.getTypeChecker();
  const source = program.getSourceFile(entry);
  const module = source === undefined ? undefined : checker.getSymbolAtLocation(source);
  if (module === undefined) throw new Error(`${entry} is no module`);
  const found = new Map<string, Place>();
  for (const exported of checker.getExportsOfModule(module)) {
    const symbol = exported.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(exported) : exported;
    const [declaration] = symbol.declarations ?? [];
    if (declaration === undefined) continue;
    if (isFunction(declaration)) found.set(exported.name, declaration);
    if (!ts.isClassDeclaration(declaration)) continue;
    for (const method of methodsOf(checker, symbol, isOurs)) {
      const [place] = method.declarations ?? [];
      if (place !== undefined) found.set(`${exported.name}.${method.name}`, place);
    }
  }
  return found;
}

/** Lists where the functions and methods stand that the files call, each by its first declaration. */
export function calledIn(program: ts.Program, files: readonly string[]): Set<Place> {
  const checker = program.getTypeChecker();
  const called = new Set<Place>();
  const visit = (node: ts.Node): void => {
    if (ts.isCallExpression(node)) {
      const { expression } = node;
      const at = ts.isPropertyAccessExpression(expression) ? expression.name : expression;
      let symbol = checker.getSymbolAtLocation(at);
      if (symbol !== undefined && symbol.flags & ts.SymbolFlags.Alias) symbol = checker.getAliasedSymbol(symbol);
      const [place] = symbol?.declarations ?? [];
      if (place !== undefined) called.add(place);
    }
    ts.forEachChild(node, visit);
  };
  for (const file of files) {
    const source = program.getSourceFile(file);
    if (source !== undefined) visit(source);
  }
  return called;
}
