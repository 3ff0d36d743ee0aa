import { expect, it } from "vitest";
import { ModuleBuilder } from "./assembler.ts";
import { addCopy, addCopyBackwards, LEAST_LARGE_BYTES } from "./copy.ts";
import { compileModule, instantiate, newSharedMemory, type WasmFunction } from "./webassembly.ts";

it("leaves large copies to the host, and no smaller ones", () => {
  const module = new ModuleBuilder();
  addCopy(module, "copy", module.importFunction("moveLarge", { params: ["i32", "i32", "i32"], results: [] }));
  const memory = newSharedMemory(32, 32);
  const bytes = new Uint8Array(memory.buffer);
  const moves: (readonly number[])[] = [];
  const { copy } = instantiate<{ copy: WasmFunction }>(compileModule(module.encode()), memory, {
    moveLarge: (...move) => void moves.push(move),
  });
  bytes.fill(7, 0, LEAST_LARGE_BYTES);
  copy(1_000_000, 0, LEAST_LARGE_BYTES - 1);
  expect(moves).toEqual([]);
  expect(bytes.subarray(999_998, 1_000_002)).toEqual(new Uint8Array([0, 0, 7, 7]));
  const end = 1_000_000 + LEAST_LARGE_BYTES - 1;
  expect(bytes.subarray(end - 2, end + 2)).toEqual(new Uint8Array([7, 7, 0, 0]));
  copy(1_000_001, 3, LEAST_LARGE_BYTES);
  expect(moves).toEqual([[1_000_001, 3, LEAST_LARGE_BYTES]]);
});

it("fills messages from their end, and touches nothing beside them", () => {
  const module = new ModuleBuilder();
  addCopyBackwards(module, "copy");
  const memory = newSharedMemory(1, 1);
  const bytes = new Uint8Array(memory.buffer);
  const { copy } = instantiate<{ copy: WasmFunction }>(compileModule(module.encode()), memory);
  const data = Uint8Array.from({ length: 512 }, (_, i) => (i * 7 + 1) % 251);
  for (let length = 0; length <= 300; length++) {
    for (const from of [0, 5]) {
      bytes.fill(0).set(data);
      // It lies on what is copied: whoever begins at the front copies what it has just written.
      copy(from + 16, from, length);
      const wanted = new Uint8Array(1024);
      wanted.set(data);
      wanted.set(data.subarray(from, from + length), from + 16);
      expect(bytes.subarray(0, 1024), `${length} bytes from ${from}`).toEqual(wanted);
    }
  }
});
