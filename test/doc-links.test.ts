/** Links of the documents that are published lead to files that are published with them, and anchors to headings. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));
const { files } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { files: string[] };

/** Whether npm puts a path into the tarball, by `files`; package.json, README and LICENSE always. */
function isPublished(path: string): boolean {
  const matches = (pattern: string) =>
    new RegExp(
      `^${pattern.replaceAll(".", "\\.").replaceAll("**", "\u0000").replaceAll("*", "[^/]*").replaceAll("\u0000", ".*")}(/|$)`,
    ).test(path);
  if (path === "package.json") return true;
  return (
    files.filter((p) => !p.startsWith("!")).some(matches) &&
    !files.filter((p) => p.startsWith("!")).some((p) => matches(p.slice(1)))
  );
}

const documents = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].concat(
  ["docs", "examples", "bench/results"].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile() && entry.name.endsWith(".md"))
      .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join("/")),
  ),
);

/** GitHub's anchor of a heading. */
const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .trim()
    .replaceAll(" ", "-");

it.each(documents)("%s links to what is published with it", (document) => {
  const broken: string[] = [];
  const text = readFileSync(join(root, document), "utf8").replace(/^```[\s\S]*?^```$/gm, "");
  for (const [, target = "", anchor] of text.matchAll(/\]\(([^)#\s]*)(?:#([^)\s]*))?\)/g)) {
    if (/^[a-z]+:/.test(target)) continue;
    const path =
      target === ""
        ? document
        : normalize(join(dirname(document), target))
            .split(sep)
            .join("/");
    if (!existsSync(join(root, path))) broken.push(`${target}: does not exist`);
    else if (isPublished(document) && !isPublished(path)) broken.push(`${target}: is not published`);
    else if (anchor !== undefined && path.endsWith(".md")) {
      const headings = [...readFileSync(join(root, path), "utf8").matchAll(/^#+ (.*)$/gm)].map(([, h = ""]) =>
        anchorOf(h),
      );
      if (!headings.includes(anchor)) broken.push(`${target}#${anchor}: no such heading`);
    }
  }
  expect(broken).toEqual([]);
});

it("would notice a document that is not published", () => {
  expect(["docs/nccl.md", "examples/rebuild/README.md", "bench/results/compile.md"].every(isPublished)).toBe(true);
  expect(["src/index.ts", "bench/peers/run.mjs", "examples/rebuild/main.test.ts"].some(isPublished)).toBe(false);
});
