/** Recorded roots, as `--root` reads them, made for one test. */
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { scratchFolder } from "../helpers/scratch.ts";

/**
 * Writes a root of files and links, by their absolute paths on the machine that it stands for.
 * @returns its folder
 */
export function recordedRoot(
  files: Readonly<Record<string, string>>,
  links: Readonly<Record<string, string>> = {},
): string {
  const root = scratchFolder("root");
  const at = (path: string) => {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    return join(root, path);
  };
  for (const [path, text] of Object.entries({ "/proc/meminfo": "MemTotal: 1048576 kB\n", ...files }))
    writeFileSync(at(path), text);
  for (const [path, target] of Object.entries(links))
    symlinkSync(relative(dirname(at(path)), join(root, target)), join(root, path));
  return root;
}
