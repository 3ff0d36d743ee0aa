import { expect, it } from "vitest";
import { ffiProblem } from "../../foreign/native/index.ts";
import { judgeFfi } from "./missing-ffi.ts";

it("says that libraries cannot be called, and how to mend it, where koffi is missing", () => {
  expect(judgeFfi(undefined)).toEqual([]);
  const [finding] = judgeFfi({
    available: false,
    what: "FFI (the package koffi)",
    why: "Cannot find module 'koffi'",
    howToGetIt: "Install it with: npm install koffi",
  });
  expect(finding).toMatchObject({ code: "NO_FFI", severity: "warning", evidence: ["Cannot find module 'koffi'"] });
  expect(finding?.mend).toContain("npm install koffi");
});

it("has no complaint where koffi is", () => {
  expect(ffiProblem()).toBeUndefined();
});
