/** The public surface: what api/ says is what the declarations in dist/ offer, and no name means two things. */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, it } from "vitest";
import { apiDifferences, apiReports } from "../scripts/api-report.mjs";

const isBuilt = existsSync(fileURLToPath(new URL("../dist/index.d.ts", import.meta.url)));

/** Made once: TypeScript reads all declarations for it. */
const reports = isBuilt ? apiReports() : new Map<string, string>();

describe.skipIf(!isBuilt)(`the public surface${isBuilt ? "" : " (needs npm run build)"}`, () => {
  it("is what api/ says: `npm run api` writes it anew", () => {
    expect(apiDifferences(reports)).toEqual([]);
  });

  it("has at most 60 names at the root", () => {
    expect(Number(/^# (\d+) names/.exec(reports.get("chorale") ?? "")?.[1])).toBeLessThanOrEqual(60);
  });

  it("gives a name one meaning", () => {
    const meanings = new Map<string, Set<string>>();
    for (const text of reports.values()) {
      for (const block of text.split("\n\n").slice(1)) {
        const name = /^(?:abstract )?(?:class|const|let|var|function|interface|type) ([\w$]+)/.exec(block.trim())?.[1];
        if (name === undefined) continue;
        const known = meanings.get(name) ?? new Set<string>();
        meanings.set(name, known.add(block.trim()));
      }
    }
    const several = [...meanings].filter(([, blocks]) => blocks.size > 1).map(([name]) => name);
    expect(several).toEqual([]);
  });
});
