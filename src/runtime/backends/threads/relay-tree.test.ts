/** Who passes on what in reduces and gathers of many ranks: the tree alone, without ranks. */
import { expect, it } from "vitest";
import { DTYPE_NAMES, REDUCE_OPS } from "../../../core/index.ts";
import { KERNEL_INDEX } from "../../executor/internal.ts";
import { childrenOf, heldBy, LEAST_TREE_RANKS, parentOf, RELAYED_KERNELS } from "./relay-tree.ts";

const range = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i);

it("has every member's part reach the root once, in stretches without gaps", () => {
  for (const n of range(LEAST_TREE_RANKS, 65)) {
    const held = (place: number): number[] => [place, ...childrenOf(place, n).flatMap(held)];
    expect(held(0)).toEqual(range(0, n));
    for (const place of range(1, n)) {
      expect(childrenOf(parentOf(place), n)).toContain(place);
      expect(held(place)).toEqual(range(place, place + heldBy(place, n)));
    }
  }
});

it("spares the root most of the messages", () => {
  expect([8, 16, 32].map((n) => childrenOf(0, n).length)).toEqual([4, 6, 7]);
});

it("passes on no partial results of averages, of scaled inputs, or of floats that are rounded once", () => {
  for (const dtype of DTYPE_NAMES) {
    for (const op of [...REDUCE_OPS, "preMulSum"] as const) {
      const kernel = KERNEL_INDEX[dtype][op];
      if (kernel === undefined) continue;
      const changesInputs = op === "avg" || op === "preMulSum";
      expect([dtype, op, RELAYED_KERNELS.has(kernel)]).toEqual([
        dtype,
        op,
        !changesInputs && !/^(f16|bf16|f8)/.test(dtype),
      ]);
    }
  }
});
