import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { judgeNode, SUPPORTED_NODE } from "./node-version.ts";

describe("the doctor on Node", () => {
  it.each(["20.19.0", "22.12.0", "24.21.0", "26.0.0", "26.10.0", "27.1.0", "28.0.0"])("supports %s", (version) => {
    expect(judgeNode(version, "2026-01-01")).toEqual([]);
  });

  it.each(["18.20.0", "20.18.1", "21.7.0", "22.11.0", "23.5.0", "25.0.0"])("refuses %s", (version) => {
    const [finding] = judgeNode(version, "2026-01-01");
    expect(finding).toMatchObject({ code: "NODE_UNSUPPORTED", severity: "error" });
    expect(finding?.mend).toBe("Use Node 20.19, 22.12, 24, 26 or newer; releases with an odd number are not tested.");
  });

  it("says that a major is past its end", () => {
    expect(judgeNode("20.20.2", "2026-04-30")).toEqual([]);
    const [finding] = judgeNode("20.20.2", "2026-11-22");
    expect(finding).toMatchObject({ code: "NODE_END_OF_LIFE", severity: "info" });
    expect(finding?.mend).toBe("Update to Node 22 or newer.");
  });

  it("supports what package.json says", () => {
    const text = readFileSync(new URL("../../../package.json", import.meta.url), "utf8");
    expect((JSON.parse(text) as { engines: { node: string } }).engines.node).toBe(SUPPORTED_NODE);
  });
});
