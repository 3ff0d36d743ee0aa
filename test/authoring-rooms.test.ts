/** Rules of the authoring rooms beyond their order: what may load what, read from the static imports of the source. */
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";

const src = fileURLToPath(new URL("../src", import.meta.url));

/** Specifiers that a file loads when it is loaded: static imports and re-exports that are not of types alone. */
function loadedBy(file: string): string[] {
  const text = readFileSync(join(src, file), "utf8");
  const found = text.matchAll(/^(?:import|export)\s+(?!type\s)(?:(?:\*|\{|[a-zA-Z])[^;"]*?from\s+)?"([^"]+)"/gm);
  return [...found].map(([, specifier = ""]) => specifier);
}

/** Every file that is loaded with `entry`, and every other specifier that one of them loads. */
function closure(entry: string): { readonly files: ReadonlySet<string>; readonly others: ReadonlySet<string> } {
  const files = new Set([entry]);
  const others = new Set<string>();
  // The set grows while it is walked: each file that is found is looked at in its turn.
  for (const file of files) {
    for (const specifier of loadedBy(file)) {
      if (specifier.startsWith(".")) files.add(join(dirname(file), specifier));
      else others.add(specifier);
    }
  }
  return { files, others };
}

const sourcesOf = (room: string) =>
  readdirSync(join(src, room)).filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts"));

/** Modules of Node that open nothing: names of paths, and source maps that are loaded already. */
const PURE: ReadonlySet<string> = new Set(["node:module", "node:path", "node:url"]);

describe("the authoring rooms", () => {
  it("let a rank load plans and the verifier without a package or I/O", () => {
    const { files, others } = closure("authoring/verifier/index.ts");
    expect([...files]).toContain("authoring/plan/plan-layout.ts");
    expect([...files].filter((file) => !/^(core|collectives|authoring\/(plan|verifier))\//.test(file))).toEqual([]);
    expect([...others].filter((name) => !PURE.has(name))).toEqual([]);
  });

  it("keep the sound compiler free of the lowering that equals MSCCL++'s", () => {
    const standing = sourcesOf("authoring/compiler").filter((name) =>
      loadedBy(`authoring/compiler/${name}`).some((specifier) => specifier.startsWith("./mscclpp/")),
    );
    // The front, which chooses between the two, and the door.
    expect(standing.sort()).toEqual(["compile.ts", "index.ts"]);
    expect(sourcesOf("authoring/compiler/mscclpp").length).toBeGreaterThan(2);
  });

  it("compile without a package", () => {
    expect([...closure("authoring/compiler/index.ts").others].filter((name) => !PURE.has(name))).toEqual([]);
  });

  it("verify a plan's file without loading what runs users' modules", () => {
    const { files } = closure("apps/cli/check.ts");
    expect([...files]).toContain("authoring/interchange/read-plan-file.ts");
    expect([...files].filter((file) => /^(runtime|authoring\/(language|algorithms))\//.test(file))).toEqual([]);
    // Which the same search would find where it is loaded.
    expect([...closure("apps/cli/load-program.ts").files].some((file) => file.startsWith("runtime/world/"))).toBe(true);
  });
});
