/** What calls have in common for NCCL. */
import { describe, expect, it } from "vitest";
import { packCall } from "../../comm/index.ts";
import { kindOf } from "./prepare.ts";

describe("kinds of calls", () => {
  it("tell element types, operators, sizes and peers apart, and nothing else", () => {
    const f32 = packCall("all_reduce", "f32", "sum", 0);
    const kinds = [
      kindOf(f32, 1000),
      kindOf(f32, 2000),
      kindOf(f32, 2 ** 31),
      kindOf(f32, 2 ** 32),
      kindOf(f32, 2 ** 33),
      kindOf(packCall("all_reduce", "f64", "sum", 0), 1000),
      kindOf(packCall("all_reduce", "f32", "prod", 0), 1000),
      kindOf(packCall("all_gather", "f32", undefined, 0), 1000),
      kindOf(packCall("send", "f32", undefined, 0), 1000, 0),
      kindOf(packCall("send", "f32", undefined, 1), 1000, 1),
      kindOf(packCall("recv", "f32", undefined, 1), 1000, 1),
    ];
    expect(new Set(kinds).size).toBe(kinds.length);
    expect(kindOf(f32, 1023)).toBe(kindOf(f32, 512));
    const broadcast = (root: number) => kindOf(packCall("broadcast", "f32", undefined, root), 1000);
    expect(broadcast(3)).toBe(broadcast(0));
  });
});
