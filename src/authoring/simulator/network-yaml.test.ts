import { expect, it } from "vitest";
import { FormatError } from "../../core/index.ts";
import { parseNetworkYaml } from "./network-yaml.ts";

it("reads flat lists, whatever stands in comments", () => {
  const text = "topology: [ Ring, Switch ] # [[[[[[[[[[\nnpus_count:\n- 4\n- 2\nlatency: [ 1.5, 2 ]\n";
  expect([...parseNetworkYaml(text)]).toEqual([
    ["topology", ["Ring", "Switch"]],
    ["npus_count", [4, 2]],
    ["latency", [1.5, 2]],
  ]);
});

// The library needs 24 s, or the whole stack, for such text.
it.each([
  ["brackets", `topology: [ Ring ]\nnpus_count: ${"[".repeat(5000)}`],
  ["balanced brackets", `topology: [ Ring ]\nnpus_count: ${"[".repeat(1000)}${"]".repeat(1000)}`],
  ["braces over lines", `topology: [ Ring ]\n${"{ a: \n".repeat(500)}`],
  ["list marks", `topology: [ Ring ]\n${"- ".repeat(3000)}`],
])("refuses %s nested thousands deep, by line", (_, text) => {
  expect(() => parseNetworkYaml(text, "net.yml")).toThrow(FormatError);
  expect(() => parseNetworkYaml(text, "net.yml")).toThrow(/^net\.yml:\d+: is nested too deep; expected numbers/);
});
