import { readdirSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  circles,
  doorFaults,
  files,
  importGraph,
  importsIn,
  ROOMS,
  roomOf,
  textOf,
  violations,
} from "./support/house.ts";

/** Longer files are several things in one. */
const MAX_LINES = 500;

describe("the house", () => {
  it("has rooms that import only rooms beneath them, through their doors", () => {
    expect(files.length).toBeGreaterThan(500);
    expect(files.flatMap((file) => violations(file, importsIn(textOf(file))))).toEqual([]);
  });

  it("would notice an import upwards, past a door, from another backend and of a file in no room", () => {
    expect(violations("core/dtype.ts", ["../mesh/index.ts"])).toHaveLength(1);
    expect(violations("mesh/axes.ts", ["../core/dtype.ts"])).toHaveLength(1);
    expect(violations("runtime/backends/nccl/queue.ts", ["../threads/index.ts"])).toHaveLength(1);
    expect(violations("mesh/axes.ts", ["../lost/index.ts"])).toHaveLength(1);
    expect(violations("mesh/index.ts", ["../core/index.ts", "./axes.ts", "node:fs", "zod"])).toEqual([]);
    expect(violations("runtime/world/launch.ts", ["../../mesh/internal.ts"])).toEqual([]);
  });

  it("has no circle of imports, types included", () => {
    expect(circles(importGraph())).toEqual([]);
  });

  it("would notice a circle", () => {
    const graph = new Map([
      ["a", ["b"]],
      ["b", ["c"]],
      ["c", ["b", "d"]],
      ["d", []],
    ]);
    expect(circles(graph)).toEqual([["b", "c"]]);
  });

  it("has doors that say what the room is for, and list what they export", () => {
    const doors = files.filter((file) => ROOMS.some((room) => file === `${room}/index.ts`));
    expect(doors.length).toBeGreaterThan(25);
    expect(doors.flatMap((file) => doorFaults(file, textOf(file)))).toEqual([]);
    // A room has a door as soon as it has a file.
    const rooms = new Set(files.map(roomOf).filter((room) => room !== undefined && room !== "apps/cli"));
    expect([...rooms].filter((room) => !files.includes(`${room}/index.ts`))).toEqual([]);
  });

  it("opens FFI only through foreign/native", () => {
    const direct = files.filter(
      (file) => !file.startsWith("foreign/native/") && importsIn(textOf(file)).includes("koffi"),
    );
    expect(direct).toEqual([]);
  });

  it("writes to the terminal from one file of the command line, which shows no escapes of others", () => {
    const writers = files.filter(
      (file) =>
        file.startsWith("apps/cli/") &&
        /\bprocess\.std(?:out|err)\.write\(|\bconsole\.|\bwriteSync\(/.test(textOf(file)),
    );
    // `stream.ts` writes plans in pieces, every character beyond ASCII escaped.
    expect(writers).toEqual(["apps/cli/output.ts", "apps/cli/stream.ts"]);
  });

  it("has no prototype in tables that are looked up by words", () => {
    // But for tables that a script writes: their keys are made here.
    const written = files.filter((file) => !textOf(file).slice(0, 300).includes("ritten by bench/"));
    const table =
      /^(?:export )?const ([A-Z_]+): (?:Readonly<|Partial<)*Record<string,[^=]*= (?!wordTable\()[\w.]*[({].*$/gm;
    const bare = written.flatMap((file) => [...textOf(file).matchAll(table)].map(([, name]) => `${file}: ${name}`));
    expect(bare).toEqual([]);
  });

  it("has no file over 500 lines", () => {
    const all = readdirSync("src", { recursive: true, encoding: "utf8" }).filter((file) => /\.tsx?$/.test(file));
    expect(all.length).toBeGreaterThan(files.length);
    expect(all.filter((file) => textOf(file).split("\n").length - 1 > MAX_LINES)).toEqual([]);
  });
});
