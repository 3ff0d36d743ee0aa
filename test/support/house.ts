import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * The rooms of the house, from the ground up. A room may import only rooms listed above it, and itself. A room that has
 * no file yet has its place here, so that its first file meets the rule.
 */
export const ROOMS: readonly string[] = JSON.parse(
  readFileSync(new URL("../../scripts/rooms.json", import.meta.url), "utf8"),
);

/** Backends that are another one and more. */
const STANDS_ON: Readonly<Record<string, string>> = {
  "runtime/backends/shm": "runtime/backends/threads",
  "runtime/backends/cuda": "runtime/backends/nccl",
};

/** The files through which other rooms come in; the last for what loads more than ranks on CPUs may. */
const DOORS = ["index.ts", "internal.ts", "cuda/internal.ts"];

const src = fileURLToPath(new URL("../../src", import.meta.url));

export function roomOf(path: string): string | undefined {
  return ROOMS.find((room) => path.startsWith(`${room}/`));
}

export const textOf = (file: string): string => readFileSync(join(src, file), "utf8");

/** Every file that is built, by its path below src/. Tests may look at anything: they are not part of what is built. */
export const files: readonly string[] = readdirSync(src, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name) && !/\.test(-d)?\.tsx?$/.test(entry.name))
  .map((entry) => relative(src, join(entry.parentPath, entry.name)).split(sep).join("/"))
  .sort();

/** What a text imports: statically, by `export … from`, and by `import()` of values and of types. */
export function importsIn(text: string): string[] {
  const code = text.replace(/^\s*(\/\/|\*|\/\*).*$/gm, "");
  return [...code.matchAll(/(?:from|import)\s*\(?\s*["']([^"']+)["']/g)].map((match) => match[1] ?? "");
}

/** What a relative import of a file means, as a path below src/. */
export function targetOf(file: string, specifier: string): string {
  return relative(src, join(src, dirname(file), specifier))
    .split(sep)
    .join("/");
}

/** What breaks the rules of rooms and doors in one file, in words. */
export function violations(file: string, specifiers: readonly string[]): string[] {
  const room = roomOf(file);
  if (room === undefined) return file === "index.ts" ? [] : [`${file} is in no room`];
  return specifiers
    .filter((specifier) => specifier.startsWith("."))
    .flatMap((specifier) => {
      const target = targetOf(file, specifier);
      const other = roomOf(target);
      if (other === undefined) return [`${file} imports ${target}, which is in no room`];
      if (other === room) return [];
      if (ROOMS.indexOf(other) > ROOMS.indexOf(room)) {
        return [`${file} (room ${room}) imports ${target} (room ${other}), which is above it`];
      }
      if (other.startsWith("runtime/backends/") && room.startsWith("runtime/backends/") && STANDS_ON[room] !== other) {
        return [`${file} imports ${target}: a backend does not import another one`];
      }
      return DOORS.some((door) => target === `${other}/${door}`)
        ? []
        : [`${file} imports ${target}, which is no door of ${other} (${DOORS.join(", ")})`];
    });
}

/** The circles of a graph of imports, each as the sorted list of the files that reach one another. */
export function circles(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  // Tarjan's strongly connected components.
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const stack: string[] = [];
  const open = new Set<string>();
  const found: string[][] = [];
  const visit = (file: string): void => {
    order.set(file, order.size);
    lowest.set(file, order.size - 1);
    stack.push(file);
    open.add(file);
    for (const next of graph.get(file) ?? []) {
      if (!graph.has(next)) continue;
      if (!order.has(next)) {
        visit(next);
        lowest.set(file, Math.min(lowest.get(file) as number, lowest.get(next) as number));
      } else if (open.has(next)) {
        lowest.set(file, Math.min(lowest.get(file) as number, order.get(next) as number));
      }
    }
    if (lowest.get(file) !== order.get(file)) return;
    const members = stack.splice(stack.indexOf(file));
    for (const member of members) open.delete(member);
    if (members.length > 1) found.push(members.sort());
  };
  for (const file of graph.keys()) if (!order.has(file)) visit(file);
  return found;
}

/** Which file imports which, types included. */
export function importGraph(): Map<string, string[]> {
  return new Map(
    files.map((file) => [
      file,
      importsIn(textOf(file))
        .filter((specifier) => specifier.startsWith("."))
        .map((specifier) => targetOf(file, specifier)),
    ]),
  );
}

/** What a door's text lacks: three lines that open it, and exports listed one by one. */
export function doorFaults(file: string, text: string): string[] {
  const faults: string[] = [];
  const comment = /^(?:\/\*\*([\s\S]*?)\*\/|((?:\/\/.*\n)+))/.exec(text);
  const lines = (comment?.[1] ?? comment?.[2] ?? "").split("\n").filter((line) => /[a-z]/i.test(line));
  if (lines.length < 3)
    faults.push(`${file} does not open with three lines: what for, what it refuses, where to start`);
  if (/^export \*/m.test(text)) faults.push(`${file} exports with *: list the names`);
  return faults;
}
