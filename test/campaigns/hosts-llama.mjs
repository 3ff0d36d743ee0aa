/**
 * The sharded Llama on tcp over hosts that are network namespaces of this machine (host-namespaces.mjs), beside the same layout
 * on threads: the tokens must be the same, and the last logits as near as sums in another order are; with `hierarchy=off` they
 * must have the same bits. Needs root on Linux and `npm run build`:
 *   node test/campaigns/hosts-llama.mjs [--hosts 2] [--ranks 2] [--tp RANKS] [--tokens 96]
 * Exits 1 when something differs, 3 where namespaces are not permitted.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeHosts } from "./host-namespaces.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "../..");
const { values } = parseArgs({
  options: {
    hosts: { type: "string", default: "2" },
    ranks: { type: "string", default: "2" },
    tp: { type: "string" },
    tokens: { type: "string", default: "96" },
  },
});
const [count, ranks] = [Number(values.hosts), Number(values.ranks)];
const tp = Number(values.tp ?? ranks);
/** Logits of this model are of the order of 10, in f32. */
const MAX_DIFFERENCE = 1e-4;
const example = join(root, "examples/sharded-llama");
const layout = ["--tp", String(tp), "--pp", String((count * ranks) / tp), "--max-new-tokens", values.tokens];
const program = [
  join(example, "main.ts"),
  "--",
  "--model",
  join(example, "model"),
  ...layout,
  "--prompt",
  "ROMEO:",
  "--json",
];
const chorale = [process.execPath, join(root, "bin/chorale.mjs"), "launch"];
const env = { ...process.env, CHORALE_SECRET: randomBytes(32).toString("hex") };

/** Runs a command. @returns what it printed */
async function output(words) {
  const child = spawn(words[0], words.slice(1), { env, stdio: ["ignore", "pipe", "inherit"] });
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (chunk) => (text += chunk));
  const code = await new Promise((resolve) => child.on("close", resolve));
  if (code !== 0) throw new Error(`${words.slice(0, 12).join(" ")} ended with ${code}`);
  return text;
}

const { hosts, remove } = makeHosts(count);
try {
  const alone = JSON.parse(await output([...chorale, "-n", String(count * ranks), "--backend", "threads", ...program]));
  for (const hierarchy of ["auto", "off"]) {
    const rendezvous = `${hosts[0].address}:29519`;
    const [text] = await Promise.all(
      hosts.map(({ ns }, node) => {
        const place = ["--nnodes", String(count), "--node-rank", String(node), "--rdzv", rendezvous];
        const words = ["-n", String(ranks), "--backend", "tcp", "--backend-option", `hierarchy=${hierarchy}`, ...place];
        return output(["ip", "netns", "exec", ns, ...chorale, ...words, ...program]);
      }),
    );
    // What a rank that is a process prints has its number before it.
    const { tokens, lastLogits, tokensPerSecond } = JSON.parse(text.replace(/^\[0\] /, ""));
    const isSame = JSON.stringify(tokens) === JSON.stringify(alone.tokens);
    const differences = lastLogits.map((value, i) => Math.abs(value - alone.lastLogits[i]));
    const [most, largest] = [differences, lastLogits.map(Math.abs)].map((list) => Math.max(...list));
    const isNear =
      lastLogits.length === alone.lastLogits.length && (hierarchy === "off" ? most === 0 : most < MAX_DIFFERENCE);
    console.log(
      `${count} hosts of ${ranks} ranks, tp ${tp}, hierarchy ${hierarchy}: ${tokens.length} tokens ${isSame ? "the same" : "DIFFER"}, ` +
        `logits ${isNear ? "within" : "DIFFER by"} ${most.toExponential(1)} of ${largest.toFixed(1)}, ${tokensPerSecond.toFixed(0)} tokens a second`,
    );
    if (!isSame || !isNear) process.exitCode = 1;
  }
} finally {
  remove();
}
