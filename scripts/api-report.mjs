// Writes the API report: api/NAME.txt for each entry point of package.json, every public name with its declaration.
// A change of the public surface then shows in review; test/api-report.test.ts fails when the report is out of date.
//
// Usage: npm run api            (build first: it reads the declarations in dist/)
//        node scripts/api-report.mjs --check    exit 1 and name the differences
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = fileURLToPath(new URL("..", import.meta.url));
const folder = join(root, "api");

/** Every entry point that has types, as [file name of its report, declarations]. */
function entryPoints() {
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  return Object.entries(exports)
    .filter(([, target]) => target.types !== undefined)
    .map(([subpath, target]) => [subpath === "." ? "chorale" : subpath.slice(2), join(root, target.types)]);
}

const printer = ts.createPrinter({ removeComments: true, newLine: ts.NewLineKind.LineFeed });

/** The declarations of a symbol as they stand in the .d.ts, without comments, `export` and private members. */
function declarationsOf(symbol) {
  return (symbol.declarations ?? []).map((node) => {
    // `const a: T, b: U`: the symbol is a declarator, its statement two levels up says `const`.
    const statement = ts.isVariableDeclaration(node) ? node.parent.parent : node;
    const withoutPrivate = ts.isClassDeclaration(statement)
      ? ts.factory.updateClassDeclaration(
          statement,
          statement.modifiers,
          statement.name,
          statement.typeParameters,
          statement.heritageClauses,
          statement.members.filter(
            (member) =>
              !(member.name !== undefined && ts.isPrivateIdentifier(member.name)) &&
              !member.modifiers?.some(({ kind }) => kind === ts.SyntaxKind.PrivateKeyword),
          ),
        )
      : statement;
    return printer
      .printNode(ts.EmitHint.Unspecified, inOrder(withoutPrivate, node.getSourceFile()), node.getSourceFile())
      .replace(/^export (default )?/, "")
      .replace(/^declare /, "");
  });
}

/** Sorts the members of unions and of inferred object types, whose order is the compiler's choice and changes with its version. */
function inOrder(node, source) {
  const textOf = (one) => printer.printNode(ts.EmitHint.Unspecified, one, source);
  const sorted = (nodes) => ts.factory.createNodeArray([...nodes].sort((a, b) => (textOf(a) < textOf(b) ? -1 : 1)));
  const { transformed } = ts.transform(node, [
    (context) => {
      const visit = (one) => {
        const inner = ts.visitEachChild(one, visit, context);
        if (ts.isUnionTypeNode(inner)) return ts.factory.updateUnionTypeNode(inner, sorted(inner.types));
        if (ts.isTypeLiteralNode(inner)) return ts.factory.updateTypeLiteralNode(inner, sorted(inner.members));
        return inner;
      };
      return visit;
    },
  ]);
  return transformed[0] ?? node;
}

/** The report of each entry point: its names in order, the same however the sources are arranged. */
export function apiReports() {
  const entries = entryPoints();
  const program = ts.createProgram(
    entries.map(([, file]) => file),
    {
      module: ts.ModuleKind.NodeNext,
      moduleResolution: ts.ModuleResolutionKind.NodeNext,
      target: ts.ScriptTarget.ES2023,
      noLib: true,
      types: [],
      noEmit: true,
      skipLibCheck: true,
    },
  );
  const checker = program.getTypeChecker();
  return new Map(
    entries.map(([name, file]) => {
      const source = program.getSourceFile(file);
      const module = source && checker.getSymbolAtLocation(source);
      if (!module) throw new Error(`${file} is missing or exports nothing: run npm run build`);
      const symbols = checker.getExportsOfModule(module).sort((a, b) => (a.name < b.name ? -1 : 1));
      const blocks = symbols.map((symbol) => {
        const target = symbol.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(symbol) : symbol;
        const renamed = target.name === symbol.name ? "" : `${symbol.name} is:\n`;
        return renamed + declarationsOf(target).join("\n");
      });
      return [name, `# ${symbols.length} names\n\n${blocks.join("\n\n")}\n`];
    }),
  );
}

/** Where the committed report differs from what dist/ declares: one line a file. */
export function apiDifferences(now = apiReports()) {
  const committed = new Set(readdirSync(folder).map((file) => file.replace(/\.txt$/, "")));
  const differences = [];
  for (const [name, text] of now) {
    if (!committed.delete(name)) differences.push(`api/${name}.txt is missing`);
    else if (readFileSync(join(folder, `${name}.txt`), "utf8") !== text) differences.push(`api/${name}.txt differs`);
  }
  for (const name of committed) differences.push(`api/${name}.txt belongs to no entry point`);
  return differences;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv.includes("--check")) {
    const differences = apiDifferences();
    for (const line of differences) console.error(line);
    process.exitCode = differences.length === 0 ? 0 : 1;
  } else {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    for (const [name, text] of apiReports()) writeFileSync(join(folder, `${name}.txt`), text);
  }
}
