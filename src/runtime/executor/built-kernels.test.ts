import { expect, it } from "vitest";
import { builtKernels } from "./built-kernels.ts";
import { assembleReduce } from "./wasm/reduce-module.ts";

it("the kernels that come with the package are byte by byte what is assembled now", () => {
  expect(Buffer.from(builtKernels() ?? []).equals(assembleReduce())).toBe(true);
});
