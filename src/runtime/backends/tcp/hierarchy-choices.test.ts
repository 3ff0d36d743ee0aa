import { describe, expect, it } from "vitest";
import { layoutOf } from "../../hosts/index.ts";
import { hierarchyTables } from "./hierarchy-choices.ts";

describe("collectives of ranks that share hosts, on tcp", () => {
  it("are made host by host where a table says so, or always", () => {
    const useOf = (marks: readonly string[], mode: "auto" | "on", collective: string, bytes: number) => {
      const rows = hierarchyTables(layoutOf(marks, 0), mode).tables.find(
        (table) => table.collective === collective,
      )?.rows;
      return rows?.findLast(({ fromBytes }) => bytes >= fromBytes)?.use;
    };
    const [one, two] = [
      ["a", "a", "a"],
      ["a", "b", "a", "b"],
    ];
    expect(useOf(one, "auto", "reduce", 8)).toBe("hierarchical");
    expect(useOf(two, "auto", "reduce", 8)).toBe("flat");
    expect(useOf(two, "auto", "reduce", 65_536)).toBe("hierarchical");
    expect(useOf(two, "auto", "broadcast", 65_536)).toBe("flat");
    expect(useOf([...two, ...two], "auto", "broadcast", 8)).toBe("hierarchical");
    expect(useOf(two, "on", "broadcast", 8)).toBe("hierarchical");
  });
});
