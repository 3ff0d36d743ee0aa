/**
 * A rank's function, sent as text: how it becomes a module. Nothing of it is evaluated in the launcher.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { FormatError, InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { type FunctionOrigin, originOf } from "./function-origin.ts";
import { bundle, type UserModule, writeModule } from "./user-module.ts";

/** What stands for the path of a function whose place is not known. */
const FUNCTION_PATH = "run.mjs";
/** How errors call it: there is no such file. */
const FUNCTION_NAME = "the function run";
const functions = new Map<string, Promise<UserModule>>();

/** The text of a function. @throws InvalidArgumentError for bound and built-in functions, which have none */
export function textOf(run: (...values: never[]) => unknown): string {
  const text = Function.prototype.toString.call(run);
  if (!/\{\s*\[native code\]\s*\}\s*$/.test(text)) return text;
  throw new InvalidArgumentError(
    "run",
    described(`${run.name || "a function"} { [native code] }`),
    "a function of a program: a bound or built-in one has no text to send to the ranks. Write run: async (world, data) => ...",
  );
}

/**
 * Makes a module whose default export is the function of this text: a function, an arrow function, or a method or
 * accessor of an object or a class. Its imports are resolved from the current folder.
 * @param path the file that the function stands in, as far as that is known
 * @throws FormatError when the text is none of these
 */
export function bundleFunction(source: string, path?: string): Promise<UserModule> {
  const key = `${path ?? ""}\0${source}`;
  let made = functions.get(key);
  if (made === undefined) {
    made = makeModule(source, path === undefined ? undefined : originOf(source, path));
    functions.set(key, made);
    // The reason may be gone the next time.
    made.catch(() => functions.delete(key));
  }
  return made;
}

async function makeModule(source: string, origin: FunctionOrigin | undefined): Promise<UserModule> {
  // Test runners built on Vite rename the dynamic import, and make its path relative to their root.
  const text = source.replace(/__vite_ssr_dynamic_import__\((["'])(\/[^"']*)?/g, (_, quote: string, path = "") => {
    const isAbsolute = path === "" || existsSync(path);
    return `import(${quote}${isAbsolute ? path : join(process.cwd(), path)}`;
  });
  const placed = placeAt(origin) + text;
  const code = await compile(`export default (${placed});`, origin?.path).catch((error: unknown) => {
    // Only its whole text tells a method from a function: `async(world) { }` begins as an arrow function does.
    if (!(error instanceof FormatError)) throw error;
    return compile(methodModule(placed), origin?.path).catch(() => {
      throw error;
    });
  });
  return { path: FUNCTION_PATH, url: writeModule(code), inputs: [], isCommonJs: false };
}

/** What brings a text to the line and the column where it stands in its file. */
function placeAt(origin: FunctionOrigin | undefined): string {
  return origin === undefined ? "" : "\n".repeat(origin.line - 1) + " ".repeat(origin.line === 1 ? 0 : origin.column);
}

/** The text of a method stands in an object alone; a private one has lost its class, and its `#` with it. */
function methodModule(text: string): string {
  const method = text.replace(/^(\s*(?:async\s+|get\s+|set\s+|\*\s*)*)#/, "$1");
  return (
    `const holder = {${method}};\n` +
    "const found = Object.getOwnPropertyDescriptor(holder, Reflect.ownKeys(holder)[0]);\n" +
    "export default found.value ?? found.get ?? found.set;"
  );
}

/** esbuild's keepNames, which tsx sets, calls this for every named function within. On the first line: lines are counted. */
const KEEP_NAMES =
  'const __name = (target, value) => Object.defineProperty(target, "name", { value, configurable: true }); ';

async function compile(module: string, path: string | undefined): Promise<Uint8Array> {
  const contents = module.includes("__name(") ? KEEP_NAMES + module : module;
  const stdin = { contents, resolveDir: process.cwd(), sourcefile: path ?? FUNCTION_PATH };
  return (
    await bundle(FUNCTION_NAME, { stdin }, ({ line, column }) => `${FUNCTION_NAME}, line ${line}, column ${column + 1}`)
  ).code;
}
