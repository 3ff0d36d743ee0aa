/** docs/environment.md names every environment variable that src/ or bin/ reads, and none that they do not. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const page = readFileSync(join(root, "docs/environment.md"), "utf8");

/** Names in quotes that say something else: codes of findings and of errors. */
function codesOf(text: string): Set<string> {
  const codes = [
    ...text.matchAll(
      /\b(?:code|CODE)(?:: | = |\()[^;{}]{0,120}?"([A-Z][A-Z0-9_]+)"(?:[^;{}"]{0,60}"([A-Z][A-Z0-9_]+)")?/g,
    ),
    ...text.matchAll(/\| "([A-Z_]+)"/g),
    ...text.matchAll(/"([A-Z][A-Z0-9_]+)",\s*(?:severity:\s*)?"(?:error|warning|info)"/g),
  ];
  return new Set(codes.flatMap(([, a, b]) => [a ?? "", b ?? ""]));
}

const files = ["src", "bin"].flatMap((folder) =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && /\.m?ts$|\.mjs$/.test(entry.name) && !/\.test\./.test(entry.name))
    .map((entry) => ({ entry, text: readFileSync(join(entry.parentPath, entry.name), "utf8") })),
);
const codes = new Set(files.flatMap(({ text }) => [...codesOf(text)]));
/** Quoted where the environment is at hand, and variables of nothing. */
const NO_VARIABLES = new Set(["NCCL_VARIABLE"]);

function readIn(text: string): string[] {
  const direct = [...text.matchAll(/\benv(?:\.|\[")([A-Z][A-Z0-9_]{2,})/g)].map(([, name]) => name ?? "");
  const named = [...text.matchAll(/(?:_VARIABLE = |variable: )"([A-Z][A-Z0-9_]*)"/g)].map(([, name]) => name ?? "");
  const listed = /\benv\b/.test(text)
    ? [...text.matchAll(/"([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)"/g)].map(([, name]) => name ?? "")
    : [];
  return [...direct, ...named, ...listed.filter((name) => !codes.has(name) && !NO_VARIABLES.has(name))];
}

it("names every variable that the code reads", () => {
  const read = new Set(files.flatMap(({ text }) => readIn(text)));
  // The search finds what it should: one of each way to read.
  for (const name of ["CHORALE_BACKEND", "NO_COLOR", "CHORALE_NCCL_LIBRARY", "SLURM_PROCID", "PATH"]) {
    expect([...read]).toContain(name);
  }
  expect([...read].filter((name) => !page.includes(`\`${name}\``)).sort()).toEqual([]);
});

it("names none that no code has heard of", () => {
  const named = [...page.matchAll(/`([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)`/g)].map(([, name]) => name ?? "");
  const all = files.map(({ text }) => text).join("\n");
  // Read by Node's tmpdir().
  const unknown = named.filter((name) => name !== "TMPDIR" && !new RegExp(`\\b${name}\\b`).test(all));
  expect(unknown).toEqual([]);
});
