import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { compileLibrary, hasCompiler } from "../../../test/support/compile-library.ts";
import { candidates, checkStatus, cString, type NativeLibrary, openLibrary, outUint64 } from "./index.ts";

const base = { name: "tiny", howToGetIt: "Compile it." };

describe("an absent library", () => {
  it("is a value that names every place that was tried", () => {
    const absent = openLibrary({ ...base, files: ["libno-such-thing.so.9"], folders: ["/nowhere"] });
    expect(absent).toMatchObject({ available: false, what: "tiny", howToGetIt: "Compile it." });
    if (absent.available) throw new Error("it is there");
    expect(absent.tried.map((t) => t.path)).toEqual(["libno-such-thing.so.9", "/nowhere/libno-such-thing.so.9"]);
    expect(absent.tried[1]?.why).toBe("no such file");
    expect(absent.why).toContain("libno-such-thing.so.9");
  });

  it("tells many places by their folders, once each", () => {
    const files = ["libno-a.so", "libno-b.so"];
    const absent = openLibrary({ ...base, files, folders: ["/nowhere/1", "/nowhere/2"] });
    if (absent.available) throw new Error("it is there");
    expect(absent.why).toMatch(
      /^tried libno-a\.so, libno-b\.so: [^;]*; no file libno-a\.so, libno-b\.so in \/nowhere\/1, \/nowhere\/2$/,
    );
    expect(absent.tried).toHaveLength(6);
  });

  it("is looked for only where a variable says, as a file or in a folder", () => {
    const spec = { ...base, files: ["liba.so.1", "liba.so"], folders: ["/opt/a"], variable: "A_LIB" };
    expect(candidates(spec, { A_LIB: "/x" })).toEqual(["/x", "/x/liba.so.1", "/x/liba.so"]);
    const absent = openLibrary(spec, { A_LIB: "/x" });
    expect(absent.available ? "" : absent.why).toMatch(
      /^A_LIB names \/x, and nothing else is tried: \/x: no such file/,
    );
    expect(candidates(spec, { A_LIB: "" })).toEqual(candidates(spec, {}));
    expect(candidates(spec, {})).toEqual(["liba.so.1", "liba.so", "/opt/a/liba.so.1", "/opt/a/liba.so"]);
  });

  it("says so when a file is there and is no library", () => {
    const path = join(scratchFolder("lib"), "libtext.so");
    writeFileSync(path, "no library");
    const absent = openLibrary({ ...base, files: [path] });
    expect(absent.available).toBe(false);
    if (!absent.available) expect(absent.tried[0]?.why).not.toBe("");
  });
});

describe.skipIf(!hasCompiler)("a library (needs cc)", () => {
  const path = hasCompiler ? compileLibrary("tiny") : "";
  const open = (): NativeLibrary => {
    const library = openLibrary({ ...base, files: ["libtiny.so"], folders: [dirname(path)], requires: ["tiny_add"] });
    if (!library.available) throw new Error(library.why);
    return library;
  };

  it("is found in a folder and called", () => {
    const library = open();
    expect(library.path).toBe(path);
    expect(library.bind("tiny_add", "int", ["int", "int"])(40, 2)).toBe(42);
    expect(library.bind("tiny_add", "int", ["int", "int"])).toBe(library.bind("tiny_add", "int", ["int", "int"]));
  });

  it("runs calls on a pool thread", async () => {
    await expect(open().bindAsync("tiny_add", "int", ["int", "int"])(1, 2)).resolves.toBe(3);
  });

  it("knows which symbols it has, and refuses to bind others", () => {
    const library = open();
    expect([library.has("tiny_add"), library.has("tiny_sub")]).toEqual([true, false]);
    expect(() => library.bind("tiny_sub", "int", [])).toThrow(/tiny_sub.*does not export/);
    expect(library.address("tiny_add")).toBeGreaterThan(0n);
    expect(() => library.address("tiny_sub")).toThrow(/tiny_sub/);
  });

  it("is not taken when it lacks a required symbol", () => {
    const other = openLibrary({ ...base, files: [path], requires: ["tiny_add", "tiny_sub"] });
    expect(other).toMatchObject({ available: false, tried: [{ path, why: "does not export tiny_sub" }] });
  });

  it("writes out-parameters", () => {
    const [value, text] = [outUint64(), Buffer.alloc(16)];
    open().bind("tiny_fill", "int", ["void *", "void *", "uint32_t"])(value.buffer, text, text.length);
    expect(value.read()).toBe(0x1122334455667788n);
    expect(cString(text)).toBe("hej");
  });

  it("turns status codes into NativeError with library, symbol and text", () => {
    const status = open().bind("tiny_status", "int", ["int"])(7);
    expect(() => checkStatus("tiny", "tiny_status", status, (code) => `made-up ${code}`)).toThrow(
      expect.objectContaining({ code: "NATIVE", library: "tiny", symbol: "tiny_status", status: 7, text: "made-up 7" }),
    );
    expect(() => checkStatus("tiny", "tiny_status", 0)).not.toThrow();
  });
});
