/**
 * Links of the documents that are published lead to files that are published with them, and anchors to headings; README.md
 * links every guide and lists every room; the paths of src/ that README.md and CONTRIBUTING.md name exist; the
 * pictures are what their scripts draw.
 */
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative, sep } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { expect, it } from "vitest";
import { type Certificate, checkCertificate, sealCertificate } from "../src/authoring/certificate/index.ts";

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

const readme = readFileSync(join(root, "README.md"), "utf8");

it("README.md links every guide of docs/", () => {
  const guides = readdirSync(join(root, "docs")).filter((name) => name.endsWith(".md"));
  expect(guides.length).toBeGreaterThan(10);
  expect(guides.filter((name) => !readme.includes(`](docs/${name})`))).toEqual([]);
});

it("README.md lists every room, and no other", () => {
  const layout = readme.slice(readme.indexOf("## Layout"));
  const listed = [...layout.matchAll(/^src\/(\S+)\/ /gm)].map(([, room = ""]) => room);
  const folders = (path: string) =>
    readdirSync(join(root, "src", path), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  // A district whose rooms are its folders has no files of its own.
  const rooms = folders("").flatMap(({ name }) =>
    readdirSync(join(root, "src", name), { withFileTypes: true }).every((entry) => entry.isDirectory())
      ? folders(name).map((room) => `${name}/${room.name}`)
      : [name],
  );
  expect(listed.toSorted()).toEqual(rooms.toSorted());
});

it.each(["README.md", "CONTRIBUTING.md"])("%s names paths of src/ that exist", (document) => {
  const named = [...readFileSync(join(root, document), "utf8").matchAll(/\bsrc\/[\w./-]*\w/g)].map(([path]) => path);
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter((path) => !path.includes("NAME") && !existsSync(join(root, path)))).toEqual([]);
});

it("documents name tests that exist, and what these say of themselves", () => {
  const tests = ["src", "test", "examples"].flatMap((folder) =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((path) =>
      `${folder}/${path}`.split(sep).join("/"),
    ),
  );
  const wrong: string[] = [];
  // Results are of the tree that they were measured on.
  for (const document of documents.filter((path) => !path.startsWith("bench/results/"))) {
    const text = readFileSync(join(root, document), "utf8");
    for (const [, name = "", title] of text.matchAll(/`([\w./-]+\.test\.ts)`(?: \("([^"]+)"\))?/g)) {
      const path = tests.find((one) => one === name || one.endsWith(`/${name}`));
      if (path === undefined) wrong.push(`${document}: ${name}`);
      else if (title !== undefined && !readFileSync(join(root, path), "utf8").includes(title))
        wrong.push(`${document}: ${name} ("${title}")`);
    }
  }
  expect(wrong).toEqual([]);
});

it.each(["overview", "synthesis"])("docs/%s.svg is what its script draws", (name) => {
  const script = join(root, `scripts/draw-${name}.mjs`);
  const { status, stderr } = spawnSync(process.execPath, [script, "--check"], { encoding: "utf8" });
  expect({ status, stderr }).toEqual({ status: 0, stderr: "" });
});

it("docs/synthesis.svg shows a certificate that holds", async () => {
  const { example } = (await import(pathToFileURL(join(root, "scripts/synthesis-example.mjs")).href)) as {
    example: Omit<Certificate, "seal">;
  };
  expect(checkCertificate(sealCertificate(example))).toEqual({ ok: true, faults: [], bound: "1/100", time: "1/100" });
});
