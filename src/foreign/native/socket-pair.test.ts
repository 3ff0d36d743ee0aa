import { spawnSync } from "node:child_process";
import { expect, it } from "vitest";
import { loadableUrl } from "../../runtime/world/package-location.ts";

/** Has a process with so few descriptors that it can take all of them. */
const PROGRAM = `
  import { closeSync, openSync } from "node:fs";
  const { socketPair } = await import(${JSON.stringify(loadableUrl("foreign/native/index"))});
  const held = [];
  const outOfFiles = (numLeft) => {
    try {
      for (;;) held.push(openSync("/dev/null"));
    } catch {}
    for (let i = 0; i < numLeft; i++) closeSync(held.pop());
    try {
      return socketPair();
    } catch (error) {
      return error.message;
    }
  };
  const said = [outOfFiles(0), outOfFiles(1)];
  for (const fd of held) closeSync(fd);
  console.log(JSON.stringify([...said, socketPair().length]));
`;

it.skipIf(process.platform === "win32")(
  "is made once there are descriptors again, for which FFI could not be loaded",
  () => {
    const words = ["--input-type=module", "-e", PROGRAM];
    const { stdout, stderr } = spawnSync("sh", ["-c", 'ulimit -n 64 && exec "$0" "$@"', process.execPath, ...words]);
    expect(String(stderr)).toBe("");
    expect(JSON.parse(String(stdout))).toEqual([
      expect.stringMatching(
        /^FFI \(the package koffi\) is not available: .*(?:EMFILE|too many open files)(?:.*[^.])?\. Raise the limit of open files: ulimit -n 65536\.$/,
      ),
      "a pair of sockets is not available: EMFILE. Raise the limit of open files: ulimit -n 65536.",
      2,
    ]);
  },
);
