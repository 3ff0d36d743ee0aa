/** Folders that are there, that can be made, and that the file system does not allow. */
import { statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { makeFolder, userFolder } from "./make-folder.ts";

const folder = scratchFolder("make-folder");

it("makes a folder and those above it, once or again", () => {
  const deep = join(folder, "a", "b", "c");
  for (let i = 0; i < 2; i++) makeFolder(deep, 0o700);
  expect([deep, join(folder, "a")].map((path) => statSync(path).mode & 0o777)).toEqual([0o700, 0o700]);
});

it("reports the system's error where no folder can be made, instead of trying forever", () => {
  writeFileSync(join(folder, "file"), "");
  expect(() => makeFolder(join(folder, "file"))).toThrow(/EEXIST/);
  expect(() => makeFolder(join(folder, "file", "below"))).toThrow(/ENOTDIR/);
  expect(() => makeFolder("")).toThrow(/ENOENT/);
  if (process.platform === "linux") expect(() => makeFolder("/proc/no/such")).toThrow(/ENOENT/);
});

it("finds a user's folders by variable, below the home, or not at all for a user without one", () => {
  const none = () => {
    throw new Error("uv_os_homedir returned ENOENT");
  };
  expect(userFolder("XDG_DATA_HOME", { XDG_DATA_HOME: "/data" }, none)).toBe("/data");
  expect(userFolder("XDG_DATA_HOME", { XDG_DATA_HOME: "" }, () => "/home/me")).toBe(
    join("/home/me", ".local", "share"),
  );
  expect(userFolder("XDG_CACHE_HOME", {}, () => "/home/me")).toBe(join("/home/me", ".cache"));
  expect(userFolder("XDG_CACHE_HOME", {}, none)).toBeUndefined();
  // A relative path counts as none, and so does a home that is one.
  expect(userFolder("XDG_CACHE_HOME", { XDG_CACHE_HOME: "here" }, () => "/home/me")).toBe(join("/home/me", ".cache"));
  expect(userFolder("XDG_CACHE_HOME", {}, () => "")).toBeUndefined();
});
