import { describe, expect, it } from "vitest";
import { addressOf } from "../../foreign/native/index.ts";
import { TensorRoom } from "./tensor-room.ts";

const MIB = 2 ** 20;

/** A room of some bytes over memory that is no file's; `limits` says what its folder has. */
function roomOf(sizeBytes: number, limits: { readonly freeBytes?: number; readonly failsFrom?: number } = {}) {
  const memory = new SharedArrayBuffer(MIB + sizeBytes);
  const reserved: (readonly [from: number, to: number])[] = [];
  const arena = {
    extend: () => {},
    close: () => {},
    release: () => {},
    mapOver: () => () => {},
    keep: () => {},
    hasRoom: (bytes: number) => bytes <= (limits.freeBytes ?? Number.MAX_VALUE),
    reserve: (from: number, to: number) => {
      if (to > (limits.failsFrom ?? Number.MAX_VALUE)) throw new Error("ENOSPC");
      reserved.push([from, to]);
    },
  };
  const address = Number(addressOf(new Uint8Array(memory)));
  const room = new TensorRoom({ memory, address, arena, from: MIB, to: MIB + sizeBytes });
  return { room, memory, reserved };
}

describe("a rank's room for tensors", () => {
  it("gives memory that the arena has, of zeros, and has room reserved before", () => {
    const { room, memory, reserved } = roomOf(9 * MIB);
    const first = room.allocate(1000);
    const second = room.allocate(5 * MIB);
    if (first === undefined || second === undefined) throw new Error("no room");
    expect([first.at, second.at, first.buffer.byteLength]).toEqual([MIB, MIB + 1024, 1000]);
    expect(reserved).toEqual([
      [MIB, 5 * MIB],
      [5 * MIB, 9 * MIB],
    ]);
    new Uint8Array(second.buffer).fill(7);
    expect(new Uint8Array(memory)[second.at + 5 * MIB - 1]).toBe(7);
    expect([room.holds(second.at, 5 * MIB), room.holds(0, 8), room.holds(10 * MIB - 4, 8)]).toEqual([
      true,
      false,
      false,
    ]);
    room.free(second);
    const third = room.allocate(5 * MIB);
    expect(third?.at).toBe(second.at);
    expect(new Uint8Array(third?.buffer ?? new ArrayBuffer(1)).every((byte) => byte === 0)).toBe(true);
  });

  it("empties what was kept of a freed tensor, and does not free what has another owner", () => {
    const { room } = roomOf(MIB);
    const one = room.allocate(MIB);
    if (one === undefined) throw new Error("no room");
    const view = new Float32Array(one.buffer);
    room.free(one);
    room.free(one);
    expect([view.length, one.buffer.byteLength]).toEqual([0, 0]);
    expect(room.allocate(MIB)).toBeDefined();
    // Once only: the second `free` found an empty buffer.
    expect(room.allocate(1)).toBeUndefined();
  });

  it("gives nothing where it is too small, or its folder is full, and goes on with what it has", () => {
    expect(roomOf(MIB).room.allocate(MIB + 1)).toBeUndefined();
    const full = roomOf(8 * MIB, { freeBytes: 5 * MIB });
    expect([full.room.allocate(6 * MIB), full.reserved.length]).toEqual([undefined, 0]);
    expect(full.room.allocate(MIB)?.at).toBe(MIB);
    const taken = roomOf(8 * MIB, { failsFrom: 6 * MIB });
    expect(taken.room.allocate(6 * MIB)).toBeUndefined();
    expect([taken.room.allocate(4 * MIB)?.at, taken.room.allocate(1)]).toEqual([MIB, undefined]);
  });
});
