/**
 * Mutates recorded machines, structure-aware and seeded: numbers become huge, negative or no numbers, lines are doubled,
 * swapped and cut, links lead elsewhere or in circles, tools fail and babble, JSON changes its types. Used by the fuzz
 * test and by scripts/fuzz-hardware.mjs.
 */
import { lstatSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join, posix } from "node:path";

/** Reads recorded roots into memory. */
export function loadRoots(folders) {
  return folders.flatMap((folder) => readdirSync(folder).map((name) => loadRoot(join(folder, name), name)));
}

function loadRoot(folder, name) {
  const root = {
    name,
    files: new Map(),
    links: new Map(),
    commands: [],
    env: {},
    nvml: undefined,
    platform: "linux",
    arch: "x64",
  };
  const walk = (path) => {
    for (const entry of readdirSync(join(folder, path))) {
      const inner = `${path}/${entry}`;
      const stat = lstatSync(join(folder, inner));
      if (stat.isSymbolicLink()) root.links.set(inner, readlinkSync(join(folder, inner)));
      else if (stat.isDirectory()) walk(inner);
      else root.files.set(inner, readFileSync(join(folder, inner), "utf8"));
    }
  };
  walk("");
  const json = (path) => (root.files.has(path) ? JSON.parse(root.files.get(path)) : undefined);
  const meta = json("/meta.json") ?? {};
  root.platform = meta.platform ?? "linux";
  root.arch = meta.arch ?? "x64";
  root.env = json("/env.json") ?? {};
  root.nvml = json("/nvml.json");
  root.commands = [...root.files.keys()]
    .filter((path) => path.startsWith("/commands/"))
    .sort()
    .map(json);
  for (const path of [...root.files.keys()])
    if (/^\/(commands\/|(meta|env|nvml|expected)\.json$)/.test(path)) root.files.delete(path);
  return root;
}

/** mulberry32: small, seeded, good enough to choose mutations. */
function random(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return { next, below: (n) => Math.floor(next() * n), pick: (list) => list[Math.floor(next() * list.length)] };
}

const NUMBERS = [
  "-1",
  "0",
  "00",
  "1e309",
  "NaN",
  "Infinity",
  "18446744073709551615",
  "9007199254740993",
  "99999999999999999999999",
  "0x7fffffff",
  "1.5",
  "-0",
  "4294967295",
  "１２",
  "",
];
const SPICE = [
  "\u0000",
  "\u001b[2J",
  "\u001b]0;x\u0007",
  "\r",
  "\n",
  "\t",
  ",",
  '"',
  "\\",
  "[N/A]",
  "ERR!",
  "<inactive>",
  "\ud800",
  "\u202e",
  "../../../..",
  "$(x)",
  "{}",
  "[]",
  "null",
  ":",
  "=",
  "GPU0",
  "__proto__",
  "constructor",
];

function mutateText(text, rng) {
  const lines = text.split("\n");
  switch (rng.below(13)) {
    case 0:
      return text.slice(0, rng.below(text.length + 1));
    case 1: {
      const numbers = [...text.matchAll(/-?\d+(\.\d+)?/g)];
      if (numbers.length === 0) return text + rng.pick(NUMBERS);
      const match = rng.pick(numbers);
      return text.slice(0, match.index) + rng.pick(NUMBERS) + text.slice(match.index + match[0].length);
    }
    case 2:
      lines.splice(rng.below(lines.length), 1);
      return lines.join("\n");
    case 3: {
      const at = rng.below(lines.length);
      return [...lines.slice(0, at), ...Array(1 + rng.below(40)).fill(lines[at]), ...lines.slice(at)].join("\n");
    }
    case 4: {
      const [a, b] = [rng.below(lines.length), rng.below(lines.length)];
      [lines[a], lines[b]] = [lines[b], lines[a]];
      return lines.join("\n");
    }
    case 5: {
      const at = rng.below(text.length + 1);
      return text.slice(0, at) + rng.pick(SPICE) + text.slice(at);
    }
    case 6: {
      const at = rng.below(lines.length);
      const cells = (lines[at] ?? "").split(",");
      cells.splice(rng.below(cells.length), 1, ...(rng.below(2) ? [] : [rng.pick(SPICE), rng.pick(NUMBERS)]));
      lines[at] = cells.join(",");
      return lines.join("\n");
    }
    case 7:
      return "";
    case 8:
      return Array.from({ length: rng.below(4096) }, () => String.fromCharCode(rng.below(256))).join("");
    case 9:
      return rng.pick(["x", "9", "(", "\n", ",", "GPU0 ", "\t", "[", '{"a":']).repeat(1 + rng.below(200_000));
    case 10:
      return text.replaceAll(/\d+/g, (digits) => (rng.below(4) ? digits : rng.pick(NUMBERS)));
    case 11:
      return text + text;
    default: {
      const at = rng.below(text.length + 1);
      const code = rng.below(65536);
      return text.slice(0, at) + String.fromCharCode(code) + text.slice(at + 1);
    }
  }
}

function mutateJson(value, rng, depth = 0) {
  if (rng.below(6) === 0 || typeof value !== "object" || value === null) {
    return rng.pick([
      null,
      true,
      -1,
      1e308,
      2 ** 53,
      "",
      "x",
      [],
      {},
      [value],
      { value },
      String(value),
      Number(value),
    ]);
  }
  if (Array.isArray(value)) {
    const copy = [...value];
    if (copy.length === 0) return [rng.pick([1, "x", null])];
    const at = rng.below(copy.length);
    const choice = rng.below(4);
    if (choice === 0) copy.splice(at, 1);
    else if (choice === 1) copy.push(...Array(1 + rng.below(200)).fill(copy[at]));
    else copy[at] = mutateJson(copy[at], rng, depth + 1);
    return copy;
  }
  const keys = Object.keys(value);
  if (keys.length === 0) return { x: 1 };
  const key = rng.pick(keys);
  const copy = { ...value };
  if (rng.below(5) === 0) delete copy[key];
  else copy[key] = mutateJson(copy[key], rng, depth + 1);
  return copy;
}

/** Applies one to five mutations; the same seed gives the same machine. */
export function mutate(original, seed) {
  const rng = random(seed);
  const root = {
    ...original,
    files: new Map(original.files),
    links: new Map(original.links),
    commands: original.commands.map((c) => ({ ...c })),
    env: { ...original.env },
  };
  const paths = [...root.files.keys()];
  const links = [...root.links.keys()];
  for (let left = 1 + rng.below(5); left > 0; left--) {
    const kind = rng.below(14);
    if (kind <= 4 && root.commands.length > 0) {
      const command = rng.pick(root.commands);
      if (kind <= 2)
        command.stdout =
          command.stdout.trimStart().startsWith("{") || command.stdout.trimStart().startsWith("[")
            ? mutateJsonText(command.stdout, rng)
            : mutateText(command.stdout, rng);
      else if (kind === 3)
        Object.assign(command, {
          exitCode: rng.pick([0, 1, 2, 6, 9, 15, 255, null, -1]),
          stderr: rng.pick(["", "No devices were found", "\u001b[31mfail", "x".repeat(100_000)]),
        });
      else
        Object.assign(
          command,
          rng.pick([
            { timedOut: true },
            { truncated: true },
            { argv: [command.argv[0]] },
            { argv: command.argv.slice(0, 2) },
            { argv: [...command.argv, "--help"] },
            { argv: [command.argv[0], ...command.argv.slice(1).map((a) => mutateText(a.slice(0, 200), rng))] },
          ]),
        );
    } else if (kind <= 8 && paths.length > 0) {
      const path = rng.pick(paths);
      if (root.files.has(path)) root.files.set(path, mutateText(root.files.get(path), rng));
    } else if (kind === 9 && paths.length > 0) root.files.delete(rng.pick(paths));
    else if (kind === 10 && links.length > 0)
      root.links.set(
        rng.pick(links),
        rng.pick([
          "/",
          ".",
          "..",
          "/etc/passwd",
          "../../../../../../..",
          "nothing",
          rng.pick(links),
          rng.pick(paths),
          "x".repeat(5000),
        ]),
      );
    else if (kind === 11 && root.nvml !== undefined) root.nvml = mutateJson(root.nvml, rng);
    else if (kind === 12)
      root.env[
        rng.pick([
          "CUDA_VISIBLE_DEVICES",
          "NVIDIA_VISIBLE_DEVICES",
          "ROCR_VISIBLE_DEVICES",
          "HIP_VISIBLE_DEVICES",
          "HABANA_VISIBLE_DEVICES",
          "TPU_CHIPS_PER_HOST_BOUNDS",
          "TPU_ACCELERATOR_TYPE",
          "SLURM_JOB_ID",
        ])
      ] = rng.pick([
        "",
        "0",
        "-1",
        "0,0,1",
        "all",
        "none",
        "void",
        "GPU-0",
        "MIG-",
        "9999999999",
        ",".repeat(1000),
        "2,2,2",
        "0,0",
        "\u001b[31m",
        "x".repeat(10_000),
      ]);
    else if (paths.length > 0) {
      // A neighbour that should not be there: a second card, another node, an odd name.
      const path = rng.pick(paths);
      const odd = posix.join(
        posix.dirname(path),
        rng.pick(["card99", "node7", "accel3", "..\u0001", "0000:ff:1f.7", "index9", "99", "neuron5"]),
      );
      if (!root.files.has(odd)) root.files.set(odd, root.files.get(path) ?? "");
    }
  }
  return root;
}

function mutateJsonText(text, rng) {
  if (rng.below(3) === 0) return mutateText(text, rng);
  try {
    return JSON.stringify(mutateJson(JSON.parse(text), rng));
  } catch {
    return mutateText(text, rng);
  }
}

/** A machine over a root in memory, with the recorded runner's rules. */
export function machineOf(root, parseNvml) {
  const folders = new Map();
  const place = (path) => {
    for (let at = path; at !== "/" && at !== ""; at = posix.dirname(at)) {
      const up = posix.dirname(at);
      const names = folders.get(up) ?? new Set();
      names.add(posix.basename(at));
      folders.set(up, names);
    }
  };
  for (const path of [...root.files.keys(), ...root.links.keys()]) place(path);
  const refused = [];
  const resolve = (path, budget = { left: 40 }) => {
    let at = "/";
    const parts = path.split("/").filter((part) => part !== "" && part !== ".");
    while (parts.length > 0) {
      const part = parts.shift();
      if (part === "..") {
        if (at === "/") return undefined;
        at = posix.dirname(at);
        continue;
      }
      const child = posix.join(at, part);
      const target = root.links.get(child);
      if (target === undefined) {
        at = child;
        continue;
      }
      if (--budget.left < 0) return undefined;
      if (target.startsWith("/")) return undefined;
      parts.unshift(...target.split("/").filter((p) => p !== "" && p !== "."));
    }
    return root.files.has(at) || folders.has(at) ? at : undefined;
  };
  const files = {
    readText: async (path, maxBytes = 1048576) => {
      const real = resolve(path);
      return real === undefined ? undefined : root.files.get(real)?.slice(0, Math.min(maxBytes, 1048576));
    },
    list: async (path) => {
      const real = resolve(path);
      return [...((real && folders.get(real)) ?? [])]
        .slice(0, 4096)
        .sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    },
    realPath: async (path) => resolve(path),
    access: async (path) => (resolve(path) === undefined ? "absent" : "ok"),
    refused,
  };
  const tool = (argv) =>
    String(argv[0] ?? "")
      .split("/")
      .at(-1);
  const nvml = root.nvml === undefined ? undefined : parseNvml(root.nvml);
  return {
    platform: root.platform,
    arch: root.arch,
    env: root.env,
    files,
    commands: {
      run: async (request) => {
        const own = root.commands.filter((c) => tool(c.argv) === request.tool);
        const found =
          own.find(
            (c) => c.argv.length === request.args.length + 1 && request.args.every((a, i) => a === c.argv[i + 1]),
          ) ?? own.find((c) => request.accepts?.(c.argv.slice(1)) === true);
        return found && { ...found, stdout: found.stdout.slice(0, 1048576), stderr: found.stderr.slice(0, 65536) };
      },
    },
    nvml: async () => nvml ?? { available: false, what: "NVML", why: "none", howToGetIt: "" },
    host: {},
    recorded: true,
    warnings: [],
  };
}

/** Checks what every inventory must hold, whatever it was made of. */
export function problems(inventory, parse) {
  const found = [];
  try {
    parse(inventory);
  } catch (error) {
    found.push(`does not fit its schema: ${String(error).slice(0, 400)}`);
  }
  const text = JSON.stringify(inventory);
  if (/\\u00(0[0-8be-f]|1[0-9a-f]|7f|[89][0-9a-f])|[\u0080-\u009f]/.test(text)) found.push("holds control characters");
  if (text.length > 4_000_000) found.push(`is ${text.length} characters long`);
  const ids = inventory.devices.map((d) => d.id);
  if (new Set(ids).size !== ids.length) found.push("has two devices of one id");
  const nodes = new Set(inventory.topology.nodes.map((n) => n.id));
  if (nodes.size !== inventory.topology.nodes.length) found.push("has two nodes of one id");
  for (const id of ids) if (!nodes.has(id)) found.push(`device ${id} is no node`);
  for (const { a, b } of inventory.topology.links)
    if (!nodes.has(a) || !nodes.has(b)) found.push(`link ${a}-${b} ends at no node`);
  if (inventory.devices[0]?.family !== "cpu") found.push("has no CPU");
  if (inventory.devices.length > 1200) found.push(`has ${inventory.devices.length} devices`);
  if (inventory.warnings.length > 128) found.push(`has ${inventory.warnings.length} warnings`);
  for (const { message } of inventory.warnings) if (/probe (failed|did not end)/.test(message)) found.push(message);
  return found;
}
