/** docs/doctor.md explains every code that the doctor can give, and no other; each is given somewhere. */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { DOCTOR_CODES } from "./finding.ts";

const folder = fileURLToPath(new URL(".", import.meta.url));
const page = readFileSync(new URL("../../../docs/doctor.md", import.meta.url), "utf8");

it("are explained in docs/doctor.md, each in one table", () => {
  const inTables = page.split("\n").filter((line) => line.startsWith("| `"));
  const explained = inTables.flatMap((line) =>
    [...(line.split("|")[1] ?? "").matchAll(/`([A-Z_]+)`/g)].map((m) => m[1]),
  );
  expect(explained.toSorted()).toEqual([...DOCTOR_CODES].sort());
});

it("are given by a check each", () => {
  const text = readdirSync(folder)
    .filter((name) => name.endsWith(".ts") && !name.endsWith(".test.ts") && name !== "finding.ts")
    .map((name) => readFileSync(`${folder}/${name}`, "utf8"))
    .join("\n");
  expect(DOCTOR_CODES.filter((code) => !text.includes(`"${code}"`))).toEqual([]);
});
