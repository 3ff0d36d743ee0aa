/** Random small models, inventories and requests for the planner's property tests. */
import fc from "fast-check";
import type { Device, Inventory, Link, TopologyNode } from "../../src/machine/topology/index.ts";
import { modelFromConfig, OBJECTIVES, type PlanRequest } from "../../src/planner/index.ts";

export type Config = Readonly<Record<string, unknown>>;

const headShapes = fc.constantFrom([1, 1], [2, 1], [4, 2], [6, 2], [6, 3], [8, 8], [12, 4], [5, 5]);

/** Configs of several architectures with small, odd and even sizes. */
export const configs: fc.Arbitrary<Config> = fc
  .record({
    kind: fc.constantFrom("llama", "qwen2", "mixtral", "gemma2", "deepseek_v2", "gpt2"),
    layers: fc.integer({ min: 1, max: 9 }),
    heads: headShapes,
    headDim: fc.constantFrom(16, 24, 64),
    columns: fc.constantFrom(96, 128, 250, 256, 384),
    vocab: fc.constantFrom(100, 257, 1000, 4096),
    hidden: fc.constantFrom(64, 120, 256),
    experts: fc.constantFrom(2, 4, 6),
    tied: fc.boolean(),
  })
  .map(({ kind, layers, heads: [heads, kv], headDim, columns, vocab, hidden, experts, tied }): Config => {
    const base = {
      model_type: kind,
      hidden_size: hidden,
      num_hidden_layers: layers,
      num_attention_heads: heads,
      num_key_value_heads: kv,
      head_dim: headDim,
      intermediate_size: columns,
      vocab_size: vocab,
      max_position_embeddings: 4096,
      tie_word_embeddings: tied,
      dtype: "bfloat16",
    };
    if (kind === "gpt2") {
      const n_embd = (heads ?? 1) * headDim;
      return {
        model_type: kind,
        n_embd,
        n_layer: layers,
        n_head: heads,
        n_positions: 4096,
        vocab_size: vocab,
        dtype: "float32",
      };
    }
    if (kind === "mixtral") return { ...base, num_local_experts: experts, num_experts_per_tok: 2 };
    if (kind === "deepseek_v2") {
      return {
        ...base,
        num_key_value_heads: heads,
        kv_lora_rank: 32,
        qk_nope_head_dim: 16,
        qk_rope_head_dim: 8,
        v_head_dim: 16,
        moe_intermediate_size: 64,
        n_routed_experts: experts,
        n_shared_experts: 1,
        num_experts_per_tok: 2,
        first_k_dense_replace: Math.min(1, layers),
      };
    }
    return base;
  });

export interface PartShape {
  readonly name: string;
  readonly memoryMiB: number;
  readonly bandwidthGBps: number;
  readonly tflops: number;
}

const parts: fc.Arbitrary<PartShape> = fc.record({
  name: fc.constantFrom("Small", "Medium", "Large"),
  memoryMiB: fc.constantFrom(1040, 1048, 1060, 1100, 1300, 1600, 4096, 65_536),
  bandwidthGBps: fc.constantFrom(50, 300, 1000, 4800),
  tflops: fc.constantFrom(5, 60, 300, 1000),
});

export interface Machine {
  readonly hosts: readonly { readonly devices: readonly number[]; readonly islandSize: number }[];
  readonly parts: readonly PartShape[];
  readonly network: boolean;
  readonly linkGBps: number;
}

/** Up to `most` devices over up to three hosts, of up to two parts, islands of any size, with or without a network. */
export function machines(most: number): fc.Arbitrary<Machine> {
  return fc
    .record({
      hosts: fc.array(
        fc.record({
          devices: fc.array(fc.integer({ min: 0, max: 1 }), {
            minLength: 1,
            maxLength: Math.max(1, Math.ceil(most / 2)),
          }),
          islandSize: fc.constantFrom(1, 2, 4),
        }),
        { minLength: 1, maxLength: 3 },
      ),
      parts: fc.tuple(parts, parts).map(([a, b]) => [a, { ...b, name: `${b.name} 2` }]),
      network: fc.boolean(),
      linkGBps: fc.constantFrom(25, 200, 478),
    })
    .map((machine) => {
      let left = most;
      const hosts = machine.hosts.flatMap((host) => {
        const devices = host.devices.slice(0, left);
        left -= devices.length;
        return devices.length > 0 ? [{ ...host, devices }] : [];
      });
      return { ...machine, hosts };
    });
}

/** One or two hosts of one, two or four devices of one part, each host an island. */
export const uniformMachines: fc.Arbitrary<Machine> = fc
  .record({
    numHosts: fc.integer({ min: 1, max: 2 }),
    perHost: fc.constantFrom(1, 2, 4),
    part: parts,
    network: fc.boolean(),
    linkGBps: fc.constantFrom(25, 200, 478),
  })
  .map(({ numHosts, perHost, part, network, linkGBps }) => ({
    hosts: Array.from({ length: numHosts }, () => ({ devices: Array(perHost).fill(0), islandSize: 4 })),
    parts: [part],
    network,
    linkGBps,
  }));

/** Scales every device's bandwidth or FLOP rate. */
export interface Scale {
  readonly bandwidth: number;
  readonly flops: number;
}

function inventoryOf(machine: Machine, scale: Scale = { bandwidth: 1, flops: 1 }): Inventory {
  const devices: Device[] = [];
  const nodes: TopologyNode[] = [];
  const links: Link[] = [];
  for (const [host, { devices: own, islandSize }] of machine.hosts.entries()) {
    for (const [at, which] of own.entries()) {
      const part = machine.parts[which];
      if (part === undefined) continue;
      const id = `gpu${devices.length}`;
      devices.push({
        id,
        family: "nvidia-gpu",
        vendor: "NVIDIA",
        name: part.name,
        index: devices.length,
        memoryBytes: part.memoryMiB * 2 ** 20,
        memoryBandwidthGBps: part.bandwidthGBps * scale.bandwidth,
        peakTflops: { bf16: part.tflops * scale.flops, f32: (part.tflops * scale.flops) / 4 },
        visible: true,
      });
      nodes.push({ id, kind: "device", host });
      for (let other = at - (at % islandSize); other < at; other++) {
        const peer = devices[devices.length - 1 - (at - other)];
        if (peer !== undefined && own[other] === which) {
          links.push({ a: peer.id, b: id, kind: "nvlink", bandwidthGBps: machine.linkGBps });
        }
      }
    }
    if (machine.network) {
      nodes.push({ id: `nic${host}`, kind: "nic", host });
      links.push({ a: `nic${host}`, b: "net0", kind: "infiniband", bandwidthGBps: 50 });
    }
  }
  if (machine.network) nodes.push({ id: "net0", kind: "network-switch" });
  return { schemaVersion: 1, devices, topology: { nodes, links }, warnings: [] };
}

export type Ask = Omit<PlanRequest, "model" | "inventory" | "onProgress">;

/** What is asked: objective, lengths, batch, formats, training. */
export const asks: fc.Arbitrary<Ask> = fc
  .record({
    objective: fc.constantFrom(...OBJECTIVES),
    contextTokens: fc.constantFrom(16, 128, 1000, 4096),
    batch: fc.option(fc.constantFrom(1, 2, 3, 8, 40), { nil: undefined }),
    quant: fc.option(fc.constantFrom("bf16", "fp8", "int4", "q4_k_m", "mxfp4", "f32"), { nil: undefined }),
    train: fc.option(fc.constantFrom("full", "lora", "qlora"), { nil: undefined, freq: 4 }),
  })
  .map(({ quant, train, batch, ...rest }) => ({
    ...rest,
    ...(batch === undefined ? {} : { batch }),
    ...(train === undefined ? (quant === undefined ? {} : { quant }) : { train }),
  }));

export function requestOf(config: Config, machine: Machine, ask: Ask, scale?: Scale): PlanRequest {
  return { ...ask, model: modelFromConfig(config), inventory: inventoryOf(machine, scale) };
}
