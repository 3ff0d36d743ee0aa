import { expect, it } from "vitest";
import { BUILT_KERNELS_FILE, builtCode } from "./built-code.ts";
import { assembleReduce } from "./wasm/reduce-module.ts";

it("the kernels that come with the package are byte by byte what is assembled now", () => {
  expect(Buffer.from(builtCode(BUILT_KERNELS_FILE) ?? []).equals(assembleReduce())).toBe(true);
});
