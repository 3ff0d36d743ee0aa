/**
 * What is measured: chorale with `wait()` and with `await`, Open MPI, Gloo. Each is a program that does one sweep and
 * prints a line of JSON per size; each is started anew for every repeat, so that nobody spins while another runs.
 */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const cache = fileURLToPath(new URL("../../.cache/peers/", import.meta.url));
/** Words put before every measured program, such as `taskset -c 2,3`. */
let prefix = [];
const SWEEP_LIMIT_MS = 300_000;

/** Answers whether a command runs and exits with 0. */
function runs(command, args) {
  return spawnSync(command, args, { stdio: "ignore" }).status === 0;
}

/** Runs a program to its end. @returns its standard output; throws what it said when it fails */
function output(command, args, env = {}) {
  const [program, ...rest] = [...prefix, command, ...args];
  return new Promise((resolve, reject) => {
    const child = spawn(program, rest, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    child.stdout.on("data", (chunk) => {
      stdout += chunk;
    });
    child.stderr.on("data", (chunk) => {
      stderr += chunk;
    });
    const timer = setTimeout(() => child.kill("SIGKILL"), SWEEP_LIMIT_MS);
    child.on("error", reject);
    child.on("close", (code) => {
      clearTimeout(timer);
      if (code === 0) resolve(stdout);
      else reject(new Error(`${command} ${args.join(" ")} ended with ${code}:\n${stderr.slice(-2000)}`));
    });
  });
}

/** The rows and the engine's name out of a peer's lines. */
function parse(text) {
  const lines = text.split("\n").filter((line) => line.startsWith("{"));
  const values = lines.map((line) => JSON.parse(line));
  return {
    rows: values.filter((value) => "timeUs" in value),
    engine: values.find((value) => "engine" in value)?.engine,
    skipped: values.find((value) => "skipped" in value)?.skipped,
  };
}

function sweepArguments(sizes, scale = () => 1) {
  return sizes.map(({ bytes, iterations }) => `${bytes}:${Math.max(4, Math.round(iterations / scale(bytes)))}`);
}

function chorale(ranks, drive) {
  return {
    name: drive === "wait" ? "chorale wait" : "chorale await",
    key: drive,
    run: async (op, sizes) =>
      parse(await output(process.execPath, [`${here}ours.mjs`, ranks, drive, op, ...sweepArguments(sizes)])),
  };
}

const MPI_ENV = { OMPI_ALLOW_RUN_AS_ROOT: "1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM: "1", NO_COLOR: "1" };

/** A python that can import `module`, or undefined. */
function pythonWith(module) {
  return ["python3", "/usr/bin/python3"].find((python) => runs(python, ["-c", `import ${module}`]));
}

function openMpi(ranks) {
  if (!runs("mpirun", ["--version"])) {
    return { skipped: "Open MPI: there is no mpirun (Debian: apt-get install openmpi-bin libopenmpi-dev gcc)" };
  }
  const fits = ranks <= availableParallelism();
  const place = fits ? ["--bind-to", "core", "--map-by", "core"] : ["--oversubscribe"];
  const start = ["-n", String(ranks), ...place];
  if (runs("mpicc", ["--version"])) {
    const source = `${here}openmpi-peer.c`;
    const binary = `${cache}openmpi-peer`;
    mkdirSync(cache, { recursive: true });
    if (!existsSync(binary) || statSync(binary).mtimeMs < statSync(source).mtimeMs) {
      const { status, stderr } = spawnSync("mpicc", ["-O2", "-o", binary, source]);
      if (status !== 0) return { skipped: `Open MPI: mpicc failed: ${String(stderr)}` };
    }
    return {
      name: "Open MPI",
      key: "mpi",
      run: async (op, sizes) =>
        parse(await output("mpirun", [...start, binary, op, ...sweepArguments(sizes)], MPI_ENV)),
    };
  }
  const python = pythonWith("mpi4py");
  if (python === undefined) return { skipped: "Open MPI: there is neither mpicc nor mpi4py" };
  return {
    name: "Open MPI (mpi4py)",
    key: "mpi",
    run: async (op, sizes) =>
      parse(
        await output("mpirun", [...start, python, `${here}openmpi_peer.py`, op, ...sweepArguments(sizes)], MPI_ENV),
      ),
  };
}

function gloo(ranks) {
  const python = pythonWith("torch.distributed");
  if (python === undefined) return { skipped: "Gloo: no python has PyTorch (Debian: apt-get install python3-torch)" };
  return {
    name: "Gloo",
    key: "gloo",
    run: async (op, sizes) => {
      const folder = mkdtempSync(join(tmpdir(), "chorale-gloo-"));
      try {
        const args = sweepArguments(sizes, (bytes) => (bytes <= 65536 ? 100 : bytes <= 2 ** 20 ? 20 : 2));
        const outputs = await Promise.all(
          Array.from({ length: ranks }, (_, rank) =>
            output(python, [`${here}gloo_peer.py`, String(rank), String(ranks), join(folder, "store"), op, ...args]),
          ),
        );
        return parse(outputs[0]);
      } finally {
        rmSync(folder, { recursive: true, force: true });
      }
    },
  };
}

/** The contenders that are here, and why the others are not. */
export function findContenders(ranks, wanted, words = []) {
  prefix = words;
  const all = [chorale(ranks, "wait"), chorale(ranks, "await")];
  const skipped = [];
  for (const [key, make] of [
    ["mpi", openMpi],
    ["gloo", gloo],
  ]) {
    if (!wanted.includes(key)) continue;
    const found = make(ranks);
    if ("skipped" in found) skipped.push(found.skipped);
    else all.push(found);
  }
  return { contenders: all, skipped };
}
