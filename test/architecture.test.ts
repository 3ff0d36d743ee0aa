import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

/** The rooms of the house, from the ground up. A room may import only rooms listed above it, and itself. */
const ROOMS = [
  "core",
  "foreign/formats",
  "foreign/native",
  "foreign/cuda",
  "collectives",
  "machine/topology",
  "machine/cost",
  "machine/hardware",
  "mesh",
  "authoring/plan",
  "authoring/verifier",
  "authoring/certificate",
  "authoring/compiler",
  "authoring/interchange",
  "authoring/language",
  "authoring/algorithms",
  "authoring/simulator",
  "authoring/synthesis",
  "planner",
  "runtime/comm",
  "runtime/memory",
  "runtime/rendezvous",
  "runtime/device",
  "runtime/progress",
  "runtime/executor",
  "runtime/backends",
  "runtime/world",
  "apps/bench",
  "apps/conformance",
  "apps/doctor",
  "apps/studio",
  "apps/cli",
] as const;

const src = fileURLToPath(new URL("../src", import.meta.url));

function roomOf(path: string): string | undefined {
  return ROOMS.find((room) => path.startsWith(room + "/"));
}

function imports(file: string): string[] {
  const text = readFileSync(file, "utf8").replace(/^\s*(\/\/|\*|\/\*).*$/gm, "");
  return [...text.matchAll(/(?:from|import)\s*\(?\s*["']([^"']+)["']/g)].map((match) => match[1] ?? "");
}

const files = readdirSync(src, { recursive: true, withFileTypes: true })
  // Tests may look at anything: they are not part of what is built.
  .filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name) && !/\.test(-d)?\.tsx?$/.test(entry.name))
  .map((entry) => relative(src, join(entry.parentPath, entry.name)).split(sep).join("/"));

/** What breaks the direction of imports in one file, in words. */
export function violations(file: string, specifiers: readonly string[]): string[] {
  const room = roomOf(file);
  if (room === undefined) return file === "index.ts" ? [] : [`${file} is in no room`];
  return specifiers
    .filter((specifier) => specifier.startsWith("."))
    .flatMap((specifier) => {
      const target = relative(src, join(src, dirname(file), specifier))
        .split(sep)
        .join("/");
      const targetRoom = roomOf(target);
      if (targetRoom === undefined) return [`${file} imports ${target}, which is in no room`];
      return ROOMS.indexOf(targetRoom as never) > ROOMS.indexOf(room as never)
        ? [`${file} (room ${room}) imports ${target} (room ${targetRoom}), which is above it`]
        : [];
    });
}

describe("the house", () => {
  it("has rooms that import only rooms beneath them", () => {
    expect(files.length).toBeGreaterThan(10);
    expect(files.flatMap((file) => violations(file, imports(join(src, file))))).toEqual([]);
  });

  it("would notice an import in the wrong direction", () => {
    expect(violations("core/dtype.ts", ["../mesh/index.ts"])).toHaveLength(1);
    expect(violations("mesh/index.ts", ["../core/dtype.ts", "node:fs", "zod"])).toEqual([]);
  });

  it("opens FFI only through foreign/native", () => {
    const direct = files.filter(
      (file) => !file.startsWith("foreign/native/") && imports(join(src, file)).includes("koffi"),
    );
    expect(direct).toEqual([]);
  });

  it("writes to the terminal from one file of the command line, which shows no escapes of others", () => {
    const writers = files.filter(
      (file) =>
        file.startsWith("apps/cli/") &&
        /\bprocess\.std(?:out|err)\.write\(|\bconsole\.|\bwriteSync\(/.test(readFileSync(join(src, file), "utf8")),
    );
    // `stream.ts` writes plans in pieces, every character beyond ASCII escaped.
    expect(writers).toEqual(["apps/cli/output.ts", "apps/cli/stream.ts"]);
  });

  it("loads no package with the files that every rank of a world loads when it starts", () => {
    const seen = new Set(["runtime/world/rank-entry.ts"]);
    const packages: string[] = [];
    // Each file that is found is looked at in its turn.
    for (const file of seen) {
      const text = readFileSync(join(src, file), "utf8");
      const loaded = [
        ...text.matchAll(/^(?:import|export)\s+(?!type\s)(?:(?:\*|\{|[a-zA-Z])[^;"]*?from\s+)?"([^"]+)"/gm),
      ];
      for (const [, specifier = ""] of loaded) {
        if (specifier.startsWith(".")) seen.add(relative(src, join(src, dirname(file), specifier)));
        else if (!specifier.startsWith("node:")) packages.push(`${file} loads ${specifier}`);
      }
    }
    // Which is some imports away: the search follows them.
    expect([...seen]).toContain("mesh/device-mesh.ts");
    expect(packages).toEqual([]);
  });

  it("has no file over 800 lines", () => {
    const long = files.filter((file) => readFileSync(join(src, file), "utf8").split("\n").length > 800);
    expect(long).toEqual([]);
  });
});
