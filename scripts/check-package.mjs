/**
 * Checks the package as its users get it: packs it, puts it into an empty project beside the dependencies that it names
 * and no others, compiles a consumer with every module resolution that TypeScript has for ES modules (strict, declarations
 * of libraries checked too), loads every entry point in Node, and asks publint and arethetypeswrong. Those two come
 * through `npx`; where they cannot be had, the check says so and goes on. Run: `npm run check-package`.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
const RESOLUTIONS = [
  ["node16", "node16"],
  ["nodenext", "nodenext"],
  ["bundler", "esnext"],
];
const LINTERS = [
  ["publint@0.3", ["run", "--strict"]],
  // ES modules alone are meant: no CommonJS, and no resolution from before `exports`.
  ["@arethetypeswrong/cli@0.18", ["--profile", "esm-only"]],
];

const folder = mkdtempSync(join(tmpdir(), "chorale-package-"));
let failed = false;

/** Runs a program. @returns whether it ended well */
function run(what, command, args, options = {}) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: folder, encoding: "utf8", ...options });
  console.log(`${status === 0 ? "ok     " : "FAILED "} ${what}`);
  if (status === 0) return stdout;
  failed = true;
  console.log(`${stdout}${stderr}`);
  return undefined;
}

/** Every entry point, as a program names it. */
const entries = Object.keys(manifest.exports).map((path) => path.replace(/^\./, manifest.name));
const modules = entries.filter((entry) => !entry.endsWith(".json"));

const CONSUMER = `
${modules.map((entry, i) => `import * as entry${i} from "${entry}";`).join("\n")}
import { type Communicator, createMesh, launch, type ProcessGroup, type Tensor, type World } from "chorale";

export const entries: readonly object[] = [${modules.map((_, i) => `entry${i}`).join(", ")}];

export const mesh = createMesh({ dp: 2, tp: "auto" }, { worldSize: 8 });
export const group: ProcessGroup = mesh.group("tp", 0);
// @ts-expect-error: this mesh has no such axis
mesh.group("pp", 0);

export async function sum(world: World): Promise<readonly number[]> {
  const comm: Communicator = world.comm;
  const x: Tensor<"f32"> = world.tensor("f32", [4]);
  await comm.allReduce(x, { op: "sum" });
  return [...x.data];
}

export const sums: Promise<readonly (readonly number[])[]> = launch({ ranks: 2, run: sum });
`;

try {
  run("npm run build", process.execPath, ["scripts/build.mjs"], { cwd: root });
  const packed = run("npm pack", "npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", folder], {
    cwd: root,
  });
  const tarball = join(folder, JSON.parse(packed ?? "[]")[0]?.filename ?? "");

  const project = join(folder, "project");
  const own = join(project, "node_modules", manifest.name);
  mkdirSync(own, { recursive: true });
  run("tar", "tar", ["xzf", tarball, "-C", own, "--strip-components=1"]);
  for (const name of [...Object.keys(manifest.dependencies), "@types/node"]) {
    const link = join(project, "node_modules", name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(root, "node_modules", name), link);
  }
  writeFileSync(join(project, "package.json"), JSON.stringify({ type: "module", private: true }));
  writeFileSync(join(project, "consumer.ts"), CONSUMER);
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  for (const [moduleResolution, module] of RESOLUTIONS) {
    const compilerOptions = {
      target: "es2022",
      lib: ["es2023", "esnext.disposable", "dom"],
      types: ["node"],
      module,
      moduleResolution,
      strict: true,
      noUncheckedIndexedAccess: true,
      exactOptionalPropertyTypes: true,
      skipLibCheck: false,
      noEmit: true,
    };
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["consumer.ts"] }));
    run(`types with moduleResolution ${moduleResolution}`, process.execPath, [tsc, "-p", project], { cwd: project });
  }
  const loadAll = `await Promise.all(${JSON.stringify(modules)}.map((entry) => import(entry)))`;
  run(`${modules.length} entry points load`, process.execPath, ["--input-type=module", "-e", loadAll], {
    cwd: project,
  });

  for (const [name, args] of LINTERS) {
    const npx = ["--yes", "--loglevel=error", name];
    if (spawnSync("npx", [...npx, "--version"], { cwd: folder }).status !== 0) {
      console.log(`skipped ${name}: npx cannot fetch it here`);
    } else run(name, "npx", [...npx, ...args, tarball]);
  }
} finally {
  rmSync(folder, { recursive: true, force: true });
}
process.exitCode = failed ? 1 : 0;
