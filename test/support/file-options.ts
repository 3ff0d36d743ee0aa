/**
 * Every place of the command line that takes a file of somebody else's, with a file that is right there. Who adds such
 * an option adds it here: the mutants and the hostile files then reach it too.
 */
import { chmodSync, lstatSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { ringAllReduce } from "../../src/authoring/algorithms/index.ts";
import type { Network } from "../../src/authoring/certificate/index.ts";
import { planToJson, writeMscclXml } from "../../src/authoring/interchange/index.ts";
import { compile, writeMscclpp } from "../../src/authoring/language/index.ts";
import { SYSTEMS } from "../../src/authoring/simulator/index.ts";
import { certify, synthesize } from "../../src/authoring/synthesis/index.ts";
import { encodeSafetensors } from "../../src/foreign/formats/index.ts";
import { parseSystem } from "../../src/machine/topology/index.ts";
import { DEFAULT_PRICES } from "../../src/planner/index.ts";
import { encodeGguf } from "../planner/gguf-file.ts";
import { Authority, writeTls } from "./certificates.ts";
import type { FileOption } from "./file-option.ts";
import { machineFileOptions } from "./machine-file-options.ts";

const utf8 = (text: string) => new TextEncoder().encode(text);
const json = (value: unknown) => utf8(JSON.stringify(value));

/** A dump of four ranks of which one did not call. */
export function flightDump(said = "rank 2 failed"): object {
  const entry = { group: "world", seq: 1, op: "all_reduce", call: "all_reduce f32 x 4", state: "issued", timeMs: 1e12 };
  return {
    schemaVersion: 1,
    backend: "threads",
    generation: 1,
    worldSize: 4,
    host: "node1",
    pid: 4711,
    groups: [{ name: "world", ranks: [0, 1, 2, 3] }],
    ranks: [0, 1, 2, 3].map((rank) => ({
      rank,
      ...(rank === 2 ? { failed: said } : {}),
      entries: rank === 2 ? [] : [entry, { ...entry, seq: 0, state: "done", endMs: 1e12 + 1 }],
    })),
  };
}

const llamaConfig = {
  model_type: "llama",
  architectures: ["LlamaForCausalLM"],
  hidden_size: 64,
  intermediate_size: 128,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  vocab_size: 256,
  max_position_embeddings: 128,
  torch_dtype: "bfloat16",
  rope_theta: 10_000,
};

function llamaTensors(): Parameters<typeof encodeSafetensors>[0] {
  const shapes: Record<string, number[]> = {
    "model.embed_tokens.weight": [16, 64],
    "model.norm.weight": [64],
    "model.layers.0.input_layernorm.weight": [64],
    "model.layers.0.post_attention_layernorm.weight": [64],
    "model.layers.0.self_attn.q_proj.weight": [64, 64],
    "model.layers.0.self_attn.k_proj.weight": [64, 64],
    "model.layers.0.self_attn.v_proj.weight": [64, 64],
    "model.layers.0.self_attn.o_proj.weight": [64, 64],
    "model.layers.0.mlp.gate_proj.weight": [128, 64],
    "model.layers.0.mlp.up_proj.weight": [128, 64],
    "model.layers.0.mlp.down_proj.weight": [64, 128],
  };
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => {
      const count = shape.reduce((a, b) => a * b, 1);
      return [name, { dtype: "F32" as const, shape, bytes: new Uint8Array(4 * count) }];
    }),
  );
}

/** A GGUF file of a model of one layer. @param name `general.name` */
export function ggufModel(
  name = "small",
  tensor = "token_embd.weight",
  tokens: readonly string[] = ["a", "b", "c"],
  numHeadCounts = 0,
): Uint8Array {
  const f32 = (label: string, ...shape: number[]) => ({
    name: label,
    shape,
    type: 0,
    sizeBytes: 4 * shape.reduce((a, b) => a * b, 1),
  });
  return encodeGguf(
    {
      "general.architecture": ["string", "llama"],
      "general.name": ["string", name],
      "llama.block_count": ["u32", 1],
      "llama.embedding_length": ["u32", 64],
      "llama.feed_forward_length": ["u32", 128],
      "llama.attention.head_count":
        numHeadCounts === 0 ? ["u32", 4] : ["strings", Array.from({ length: numHeadCounts }, () => "4")],
      "llama.attention.head_count_kv": ["u32", 2],
      "llama.context_length": ["u32", 128],
      "llama.vocab_size": ["u32", 256],
      "tokenizer.ggml.tokens": ["strings", tokens],
    },
    [
      f32(tensor, 64, 256),
      f32("output_norm.weight", 64),
      f32("blk.0.attn_norm.weight", 64),
      f32("blk.0.attn_q.weight", 64, 64),
      f32("blk.0.attn_k.weight", 64, 32),
      f32("blk.0.attn_v.weight", 64, 32),
      f32("blk.0.attn_output.weight", 64, 64),
      f32("blk.0.ffn_norm.weight", 64),
      f32("blk.0.ffn_gate.weight", 64, 128),
      f32("blk.0.ffn_up.weight", 64, 128),
      f32("blk.0.ffn_down.weight", 128, 64),
    ],
  );
}

/** A program with a loop, an argument and its schema. */
const PROGRAM = `import { allGather, program } from "chorale/language";
import { z } from "zod";

export const args = z.object({ numRanks: z.number().int().min(2).max(8).default(2) });

export default ({ numRanks }: z.infer<typeof args>) =>
  program({ name: "direct", collective: allGather(numRanks), autoSync: "full" }, (p) => {
    for (const from of p.ranks) for (const to of p.ranks) p.copy(to.output.at(from.id), from.input.at(0), to.id);
  });
`;

/** A rank's script, as the guide has it. */
const SCRIPT = `import { joinWorld } from "chorale";

await using world = await joinWorld();
const x = world.tensor("f32", [4]).fill(world.rank + 1);
await world.comm.allReduce(x, { op: "sum" });
if (world.rank === 0) console.log(x.at(0));
`;

/** What all_reduce_perf prints. */
const NCCL_TESTS = `#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    12.41    0.08    0.12      0    12.20    0.08    0.13      0
       65536         16384     float     sum      -1    15.03    4.36    6.54      0    14.87    4.41    6.61      0
     1048576        262144     float     sum      -1    31.20   33.61   50.41      0    30.95   33.88   50.82      0
# Avg bus bandwidth    : 19.0
`;

/** Three ranks whose links go one way round. */
const circle: Network = {
  nodes: ["a", "b", "c"].map((id) => ({ id, kind: "rank" })),
  edges: ["ab", "bc", "ca"].map(([from = "", to = ""]) => ({ from, to, capacity: "10" })),
};
const certificate = certify(await synthesize(circle, "all_gather"));

const measured = fileURLToPath(new URL("../fixtures/simulator/h200-4-2026-11-20.json", import.meta.url));

/** Rows of the measurements: enough to fit one constant to. */
function measurements(): object {
  const all = JSON.parse(readFileSync(measured, "utf8")) as { rows: { plan?: string }[] };
  return { ...all, rows: all.rows.filter(({ plan }) => plan !== undefined).slice(0, 4) };
}

const astra = utf8(
  "topology: [ Ring, FullyConnected ]\nnpus_count: [ 2, 2 ]\nbandwidth: [ 50.0, 25.0 ]  # GB/s\nlatency: [ 500.0, 700 ]\n",
);

/** What a launch over TLS reads: one file of three, the others right and beside it. */
function tlsOptions(): readonly FileOption[] {
  const authority = new Authority();
  const { cert, key } = authority.issue();
  return Object.entries({ ca: authority.cert, cert, key }).map(([part, content]) => ({
    name: `launch --tls-${part}`,
    file: `changed-${part}.pem`,
    content: utf8(content),
    argv: (path) => {
      const files = { ...writeTls(dirname(path), authority, { cert, key }), [part]: path };
      // A key that others can read is refused before it is looked at.
      if (lstatSync(path).isFile()) chmodSync(path, 0o600);
      const words = Object.entries(files).flatMap(([each, file]) => [`--tls-${each}`, file]);
      return ["launch", "-n", "2", "--backend", "tcp", "--dry-run", ...words, fileURLToPath(import.meta.url)];
    },
  }));
}

/** The options, with what they need beside the file written to `folder`. */
export function fileOptions(folder: string): readonly FileOption[] {
  mkdirSync(folder, { recursive: true });
  const beside = (name: string, content: Uint8Array | string) => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const program = ringAllReduce({ numRanks: 4 });
  const plan = compile(program);
  const mscclpp: string[] = [];
  writeMscclpp(program, (piece) => mscclpp.push(piece));
  const ours = utf8(planToJson(plan));
  const right = beside("right-plan.json", ours);
  const two = compile(ringAllReduce({ numRanks: 2 }));
  beside("right-two.json", utf8(planToJson(two)));
  const inventory = parseSystem("l4");
  const dgx = json(parseSystem("rtx4090-2"));
  const four = beside("right-four.json", json(parseSystem("4x rtx4090-2")));
  if (inventory === undefined) throw new Error("no preset l4");
  const onFile = ["--topology", four, "-b", "64K", "-e", "64K"];
  const small = ["-b", "64K", "-e", "64K"];
  const fit = ["tune", "--fit", beside("right-measured.json", json(measurements())), "--only", "fenceUs"];
  const plans = [
    ["chorale plan", "plan.json", ours],
    ["MSCCL++ plan", "mscclpp.json", utf8(mscclpp.join(""))],
    ["MSCCL plan", "plan.xml", utf8(writeMscclXml(plan))],
  ] as const;
  return [
    ...plans.flatMap(([what, file, content]): FileOption[] => [
      { name: `check: ${what}`, file, content, argv: (path) => ["check", path] },
      { name: `check --json: ${what}`, file, content, argv: (path) => ["check", path, "--json"] },
      { name: `compile: ${what}`, file, content, argv: (path) => ["compile", path, "--no-verify"] },
      { name: `compile --json: ${what}`, file, content, argv: (path) => ["compile", path, "--json"] },
      {
        name: `compile --diff: ${what}`,
        file,
        content,
        argv: (path) => ["compile", "--diff", path, right, "--no-verify"],
      },
      {
        name: `sim: ${what}`,
        file,
        content,
        argv: (path) => ["sim", path, "--topology", "hgx-h100-8", ...small],
      },
      {
        name: `bench: ${what}`,
        file,
        content,
        argv: (path) => ["bench", path, "-b", "64K", "-e", "64K", "--iterations", "1", "--repeats", "1"],
        isSlow: true,
      },
    ]),
    {
      name: "tune: plan",
      file: "plan.json",
      content: utf8(planToJson(two)),
      argv: (path) => ["tune", path, "--backend", "threads", "--dry-run", "-b", "64", "-e", "64", "--budget", "1"],
      isSlow: true,
    },
    ...["cuda", "xml", "json"].map(
      (target): FileOption => ({
        name: `compile --target ${target}: plan`,
        file: "plan.json",
        content: ours,
        argv: (path) => ["compile", path, "--target", target, "--no-verify"],
      }),
    ),
    {
      name: "check --target mscclpp: plan",
      file: "plan.json",
      content: ours,
      argv: (path) => ["check", path, "--target", "mscclpp", "--promise", "relaunch"],
    },
    {
      name: "sim --trace and --chakra: plan",
      file: "plan.json",
      content: ours,
      argv: (path) => {
        const beside = (name: string) => join(dirname(path), name);
        return ["sim", path, ...onFile, "--trace", beside("trace.json"), "--chakra", beside("chakra")];
      },
    },
    {
      name: "sim --topology: inventory",
      file: "inventory.json",
      content: json(parseSystem("mi300x-8")),
      argv: (path) => ["sim", right, "--topology", path, ...small],
    },
    {
      name: "sim --topology: ASTRA-sim network",
      file: "network.yml",
      content: astra,
      argv: (path) => ["sim", right, "--topology", path, ...small],
    },
    {
      name: "sim --params",
      file: "params.json",
      content: json(Object.values(SYSTEMS)[0]),
      argv: (path) => ["sim", right, "--params", path, "--topology", "hgx-h100-8", ...small],
    },
    {
      name: "tune --fit",
      file: "measured.json",
      content: json(measurements()),
      argv: (path) => ["tune", "--fit", path, "--topology", "hgx-h200-8", "--only", "fenceUs"],
      isSlow: true,
    },
    {
      name: "tune --params",
      file: "params.json",
      content: json(Object.values(SYSTEMS)[0]),
      argv: (path) => [...fit, "--topology", "hgx-h200-8", "--params", path],
      isSlow: true,
    },
    {
      name: "tune --topology",
      file: "inventory.json",
      content: json(parseSystem("hgx-h200-8")),
      argv: (path) => [...fit, "--topology", path],
      isSlow: true,
    },
    {
      name: "topo --hardware",
      file: "inventory.json",
      content: json(parseSystem("mi300x-8")),
      argv: (path) => ["topo", "--hardware", path],
    },
    {
      name: "topo --hardware --json",
      file: "inventory.json",
      content: dgx,
      argv: (path) => ["topo", "--hardware", path, "--format", "json"],
    },
    {
      name: "plan: config.json",
      file: "config.json",
      content: json(llamaConfig),
      argv: (path) => ["plan", path, "--hardware", "l4", "--context", "64"],
    },
    {
      name: "plan: safetensors",
      file: "model.safetensors",
      content: encodeSafetensors(llamaTensors()),
      argv: (path) => ["plan", path, "--hardware", "l4", "--context", "64"],
    },
    {
      name: "plan: GGUF",
      file: "model.gguf",
      content: ggufModel(),
      argv: (path) => ["plan", path, "--hardware", "l4", "--context", "64"],
    },
    {
      name: "plan: index without its files",
      file: "model.safetensors.index.json",
      content: json({
        metadata: { total_size: 1000 },
        weight_map: {
          "model.layers.0.mlp.up_proj.weight": "none-1.safetensors",
          "model.layers.1.mlp.up_proj.weight": "none-2.safetensors",
        },
      }),
      argv: (path) => {
        writeFileSync(join(dirname(path), "config.json"), JSON.stringify(llamaConfig));
        return ["plan", path, "--hardware", "l4", "--context", "64"];
      },
    },
    {
      name: "plan: folder",
      file: "config.json",
      content: json(llamaConfig),
      argv: (path) => ["plan", dirname(path), "--hardware", "l4", "--context", "64"],
    },
    {
      name: "plan --hardware",
      file: "inventory.json",
      content: json(inventory),
      argv: (path) => ["plan", "gpt2", "--hardware", path, "--explain"],
    },
    {
      name: "plan --hardware --json",
      file: "inventory.json",
      content: dgx,
      argv: (path) => ["plan", "gpt2", "--hardware", path, "--json"],
    },
    {
      name: "plan --prices",
      file: "prices.json",
      content: json(DEFAULT_PRICES),
      argv: (path) => ["plan", "gpt2", "--hardware", "l4", "--prices", path],
    },
    {
      name: "doctor --flight",
      file: "flight.json",
      content: json(flightDump()),
      argv: (path) => ["doctor", "--flight", path],
    },
    {
      name: "doctor --flight --json",
      file: "flight.json",
      content: json(flightDump()),
      argv: (path) => ["doctor", "--flight", path, "--json"],
    },
    {
      name: "doctor --flight: folder",
      file: "flight.json",
      content: json(flightDump()),
      argv: (path) => ["doctor", "--flight", dirname(path)],
    },
    ...(
      [
        ["check", ["check"], []],
        ["compile", ["compile"], []],
        ["sim", ["sim"], ["--topology", "hgx-h100-8", ...small]],
        ["bench", ["bench"], ["-b", "1K", "-e", "1K"]],
      ] as const
    ).map(
      ([what, before, after]): FileOption => ({
        name: `${what}: program`,
        file: "program.ts",
        content: utf8(PROGRAM),
        argv: (path) => [...before, path, ...after],
        isProgram: true,
        isSlow: what === "bench",
      }),
    ),
    {
      // Never without --dry-run: what a changed line names is not to be reached.
      name: "launch --hostfile",
      file: "hosts.txt",
      content: utf8("# two hosts\ngpu-1:2\nuser@gpu-2 slots=4\n"),
      argv: (path) => ["launch", "--hostfile", path, "--backend", "tcp", "--dry-run", fileURLToPath(import.meta.url)],
    },
    ...tlsOptions(),
    {
      name: "launch: program",
      file: "script.ts",
      content: utf8(SCRIPT),
      argv: (path) => ["launch", "-n", "2", "--timeout", "10", path],
      isProgram: true,
      isSlow: true,
      mayLeave: true,
    },
    {
      name: "check --certificate",
      file: "proof.json",
      content: json(certificate),
      argv: (path) => ["check", "--certificate", path],
    },
    {
      name: "synth --topology: network",
      file: "circle.network.json",
      content: json(circle),
      argv: (path) => ["synth", "all_gather", "--topology", path],
    },
    {
      name: "synth --topology: inventory",
      file: "inventory.json",
      content: dgx,
      argv: (path) => ["synth", "broadcast", "--topology", path],
    },
    {
      name: "sim --measured: nccl-tests",
      file: "all_reduce.txt",
      content: utf8(NCCL_TESTS),
      argv: (path) => ["sim", right, "--topology", "hgx-h100-8", "--measured", path],
    },
    {
      name: "sim --measured: JSON",
      file: "all_reduce.json",
      content: json({ rows: [1024, 4096, 65_536].map((sizeBytes) => ({ sizeBytes, timeUs: 10 + sizeBytes / 1e4 })) }),
      argv: (path) => ["sim", right, "--topology", "hgx-h100-8", "--measured", path, "--json"],
    },
    {
      name: "sim: two plans on an inventory",
      file: "plan.json",
      content: ours,
      argv: (path) => ["sim", path, right, ...onFile, "--json"],
    },
    {
      name: "synth --params",
      file: "params.json",
      content: json(Object.values(SYSTEMS)[0]),
      argv: (path) => ["synth", "all_gather", "--topology", "rtx4090-2", "--envelope", "--params", path, ...small],
    },
    {
      name: "synth --topology: ASTRA-sim network",
      file: "network.yml",
      content: astra,
      argv: (path) => ["synth", "broadcast", "--topology", path],
    },
    ...machineFileOptions(folder, two, right),
  ];
}
