/**
 * What things cost, by system. A system is a row of named constants with its source; where a machine was not measured,
 * the row of its nearest relative is used and the uncertainty says so. `chorale tune --fit` writes rows of its own.
 *
 * `h200` was fitted to the curves in `data/h200-4-2026-11-20.ts` (f32 all-reduce, 4 GPUs, graph replay); how well it
 * holds is in bench/results/simulator.md. The rest follows NCCL's tuning constants (src/graph/tuning.cc 2.30.7) for
 * latencies and the links' own rates.
 */
import { z } from "zod";
import { InvalidArgumentError } from "../../core/index.ts";
import type { LinkKind } from "../../machine/topology/index.ts";

const us = z.number().nonnegative();
const gbps = z.number().positive();

export const systemParametersSchema = z.object({
  name: z.string(),
  source: z.string(),
  /** Relative error to expect, one standard deviation. */
  uncertainty: z.number().nonnegative(),
  /** From the launch of a captured graph node to the first instruction of a block, and from its last to completion. */
  launchUs: us,
  endUs: us,
  /** Fetching and starting an operation, and a block-wide synchronisation. */
  opUs: us,
  syncUs: us,
  /** Meeting other blocks of the device. */
  barrierUs: us,
  /** Issuing a signal, making earlier stores visible before it (a fence), and noticing one. */
  signalUs: us,
  fenceUs: us,
  waitUs: us,
  /** One way, for a store or a load's request, by kind of the slowest link on the way. */
  latencyUs: z.partialRecord(z.string() as unknown as z.ZodType<LinkKind>, us),
  /** A port channel: handing a request to the proxy, and the proxy's work for one request. */
  portPushUs: us,
  proxyUs: us,
  /** What one thread block moves to or from another device, and within its own. */
  blockRemoteGBps: gbps,
  blockLocalGBps: gbps,
  /** Packets: payload that one block sends a second. */
  blockPacketGBps: gbps,
  /** Share of a link's rate that stores and loads reach, when all buffers fit the last-level cache and when not. */
  efficiencyCached: z.number().positive().max(1),
  efficiency: z.number().positive().max(1),
  cacheBytes: z.number().nonnegative(),
  /** The same for packets, which are twice their payload. */
  packetEfficiency: z.number().positive().max(1),
  /** Share of a NIC's rate, and of PCIe's. */
  networkEfficiency: z.number().positive().max(1),
  pcieEfficiency: z.number().positive().max(1),
});
export type SystemParameters = z.infer<typeof systemParametersSchema>;

const H200: SystemParameters = {
  name: "h200",
  source: "fitted to 4x H200, NVLink 4, driver 580.159, CUDA 13.0, 2026-11-20",
  uncertainty: 0.1,
  launchUs: 1.3,
  endUs: 0.8,
  opUs: 0.05,
  syncUs: 0.03,
  barrierUs: 0.8,
  signalUs: 0.1,
  fenceUs: 1,
  waitUs: 0.1,
  latencyUs: { nvlink: 0.75, pcie: 0.9, infiniband: 2.5, roce: 3, ethernet: 10 },
  portPushUs: 0.4,
  proxyUs: 1.2,
  blockRemoteGBps: 14,
  blockLocalGBps: 40,
  blockPacketGBps: 12,
  efficiencyCached: 0.91,
  efficiency: 0.72,
  cacheBytes: 50e6,
  packetEfficiency: 0.61,
  networkEfficiency: 0.96,
  pcieEfficiency: 0.78,
};

/** No overheads and no losses: what closed forms assume. A link's own latency and rate are all that counts. */
const IDEAL: SystemParameters = {
  name: "ideal",
  source: "the alpha-beta model: nothing but the links costs anything",
  uncertainty: 0,
  launchUs: 0,
  endUs: 0,
  opUs: 0,
  syncUs: 0,
  barrierUs: 0,
  signalUs: 0,
  fenceUs: 0,
  waitUs: 0,
  latencyUs: {},
  portPushUs: 0,
  proxyUs: 0,
  blockRemoteGBps: 1e15,
  blockLocalGBps: 1e15,
  blockPacketGBps: 1e15,
  efficiencyCached: 1,
  efficiency: 1,
  cacheBytes: 0,
  packetEfficiency: 1,
  networkEfficiency: 1,
  pcieEfficiency: 1,
};

const like = (name: string, source: string, changes: Partial<SystemParameters>): SystemParameters => ({
  ...H200,
  name,
  source,
  uncertainty: 0.3,
  ...changes,
});

export const SYSTEMS: Readonly<Record<string, SystemParameters>> = {
  h200: H200,
  ideal: IDEAL,
  h100: like("h100", "as h200: same SMs, same NVLink; memory slower (NVIDIA H100 data sheet)", { uncertainty: 0.15 }),
  a100: like("a100", "as h200, with NCCL's latencies for Ampere and 40 MB of L2 (NVIDIA A100 data sheet)", {
    latencyUs: { nvlink: 0.8, pcie: 1, infiniband: 2.7, roce: 3, ethernet: 10 },
    cacheBytes: 40e6,
    blockRemoteGBps: 10,
    efficiency: 0.78,
  }),
  b200: like("b200", "as h200, with the links of NVLink 5 and 126 MB of L2 (NVIDIA Blackwell tuning guide)", {
    cacheBytes: 126e6,
    blockRemoteGBps: 28,
    blockPacketGBps: 24,
  }),
  generic: like("generic", "as h200, where nothing better is known", { uncertainty: 0.5 }),
};

/**
 * Finds the parameters of a system by the name of its accelerators (`NVIDIA H100 80GB HBM3`), or of a row.
 * @example
 * parametersFor("NVIDIA H200").name // "h200"
 */
export function parametersFor(device: string): SystemParameters {
  const exact = SYSTEMS[device];
  if (exact !== undefined) return exact;
  const name = device.toLowerCase();
  if (/h200|h20\b/.test(name)) return H200;
  if (/h100|h800/.test(name)) return SYSTEMS["h100"]!;
  if (/a100|a800|a10g|a40\b/.test(name)) return SYSTEMS["a100"]!;
  if (/b200|b300|gb200|gb300|gb10/.test(name)) return SYSTEMS["b200"]!;
  return SYSTEMS["generic"]!;
}

/**
 * Reads parameters from a file written by `chorale tune --fit`; missing fields come from the row `base` names.
 * @throws InvalidArgumentError naming the field
 */
export function parseParameters(value: unknown, base = "h200"): SystemParameters {
  const result = systemParametersSchema.safeParse({ ...(SYSTEMS[base] ?? H200), ...(value as object) });
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new InvalidArgumentError(
    issue?.path.join(".") ?? "parameters",
    value,
    issue?.message ?? "simulator parameters",
  );
}
