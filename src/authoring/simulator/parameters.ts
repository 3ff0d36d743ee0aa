/**
 * What things cost, by system. A system is a row of named constants with its source; where a machine was not measured,
 * the row of its nearest relative is used and the uncertainty says so. `chorale tune --fit` writes rows of its own.
 *
 * `h200` was fitted to measurements (below); how well it holds is in bench/results/simulator.md. The rest follows NCCL's tuning constants (src/graph/tuning.cc 2.30.7) for
 * latencies and the links' own rates.
 */
import { z } from "zod";
import { InvalidArgumentError, wordTable } from "../../core/index.ts";
import { nvidiaGeneration } from "../../machine/cost/index.ts";
import { findPart, LINK_KINDS } from "../../machine/topology/index.ts";

/** Of JSON's two zeros only the one that it also writes: what was read and written again is the same. */
const atLeastZero = z
  .number()
  .nonnegative()
  .overwrite((x) => (x === 0 ? 0 : x));
/** Bounds that keep simulated time finite: nothing real is near them. */
const us = atLeastZero.max(1e9);
const gbps = z.number().min(1e-6).max(1e15);
const share = z.number().min(1e-6).max(1);

export const systemParametersSchema = z.strictObject({
  name: z.string().max(256),
  source: z.string().max(4096),
  /** Relative error to expect, one standard deviation. */
  uncertainty: atLeastZero,
  /** Relative standard error of single constants, where they were fitted. */
  uncertainties: z.record(z.string(), atLeastZero).optional(),
  /** From the launch of a captured graph node to the first instruction of a block, and from its last to completion. */
  launchUs: us,
  endUs: us,
  /** Fetching and starting an operation, and a block-wide synchronisation. */
  opUs: us,
  syncUs: us,
  /** Meeting other blocks of the device. */
  barrierUs: us,
  /** Issuing a signal, and noticing one. */
  signalUs: us,
  waitUs: us,
  /** Making earlier stores visible before a signal: what it holds the strand, and longer for each other strand of the rank. */
  fenceUs: us,
  fencePerStrandUs: us,
  /** From a load of the device's own memory to its data, once an operation. */
  loadUs: us,
  /** One way, for a store or a load's request, by kind of the slowest link on the way. */
  latencyUs: z.partialRecord(z.enum(LINK_KINDS), us),
  /** A port channel: handing a request to the proxy, and the proxy's work for one request. */
  portPushUs: us,
  proxyUs: us,
  /** What one thread block moves to and from other devices, loads and stores together, and within its own. */
  blockRemoteGBps: gbps,
  blockLocalGBps: gbps,
  /** Packets: payload that one block sends a second. */
  blockPacketGBps: gbps,
  /** Share of a link's rate that loads reach, and stores beside them, when all buffers fit the last-level cache and when not. */
  efficiencyCached: share,
  efficiency: share,
  cacheBytes: atLeastZero,
  /** The same for operations that only store. */
  storeEfficiency: share,
  /** The same for packets, which are twice their payload. */
  packetEfficiency: share,
  /** Share of a NIC's rate, and of PCIe's. */
  networkEfficiency: share,
  pcieEfficiency: share,
  /** Bus bandwidth of NCCL's LL protocol, for its model; NCCL's own table where it was not measured. */
  ncclLLGBps: gbps.optional(),
});
export type SystemParameters = Readonly<z.infer<typeof systemParametersSchema>>;

/**
 * Fitted by `chorale tune --fit` to the rows of test/fixtures/simulator/h200-4-2026-11-20.json that are within 15 % of the
 * fastest grid of their plan and size, and to the curves of data/h200-4-2026-11-20.ts; then fenceUs, fencePerStrandUs and
 * the three efficiencies were moved, by one to four of their standard errors, so that both measurements are met at 16 and
 * 64 MiB, where they differ by 29 and 10 %.
 */
const H200: SystemParameters = {
  name: "h200",
  source: "fitted to 4x H200, NVLink 4, driver 580.159, CUDA 13.0, 2026-11-20",
  uncertainty: 0.1,
  uncertainties: {
    launchUs: 0.54,
    endUs: 0.62,
    fenceUs: 0.15,
    fencePerStrandUs: 0.2,
    loadUs: 0.25,
    "latencyUs.nvlink": 0.07,
    blockRemoteGBps: 0.04,
    blockPacketGBps: 0.5,
    efficiencyCached: 0.05,
    efficiency: 0.02,
    storeEfficiency: 0.02,
    packetEfficiency: 0.04,
  },
  launchUs: 0.45,
  endUs: 0.35,
  opUs: 0.05,
  syncUs: 0.03,
  barrierUs: 0.8,
  signalUs: 0.1,
  waitUs: 0.07,
  fenceUs: 0.85,
  fencePerStrandUs: 0.014,
  loadUs: 0.85,
  latencyUs: { nvlink: 1.45, pcie: 1.6, infiniband: 2.5, roce: 3, ethernet: 10 },
  portPushUs: 0.4,
  proxyUs: 1.2,
  blockRemoteGBps: 54,
  blockLocalGBps: 40,
  blockPacketGBps: 22,
  efficiencyCached: 0.85,
  efficiency: 0.68,
  cacheBytes: 30e6,
  storeEfficiency: 0.69,
  packetEfficiency: 0.67,
  networkEfficiency: 0.96,
  pcieEfficiency: 0.78,
  ncclLLGBps: 204,
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
  waitUs: 0,
  fenceUs: 0,
  fencePerStrandUs: 0,
  loadUs: 0,
  latencyUs: {},
  portPushUs: 0,
  proxyUs: 0,
  blockRemoteGBps: 1e15,
  blockLocalGBps: 1e15,
  blockPacketGBps: 1e15,
  efficiencyCached: 1,
  efficiency: 1,
  cacheBytes: 0,
  storeEfficiency: 1,
  packetEfficiency: 1,
  networkEfficiency: 1,
  pcieEfficiency: 1,
};

/** A system that was not measured: its nearest relative's constants, and no claim about single ones. */
function like(name: string, source: string, changes: Partial<SystemParameters>): SystemParameters {
  const { ncclLLGBps: _measured, uncertainties: _fitted, ...rest } = H200;
  return { ...rest, name, source, uncertainty: 0.4, ...changes };
}

export const SYSTEMS: Readonly<Record<string, SystemParameters>> = wordTable({
  h200: H200,
  ideal: IDEAL,
  h100: like("h100", "as h200: same SMs, same NVLink; memory slower (NVIDIA H100 data sheet)", { uncertainty: 0.3 }),
  a100: like("a100", "as h200, with the links of NVLink 3, slower SMs and 40 MB of L2 (NVIDIA A100 data sheet)", {
    latencyUs: { nvlink: 1.6, pcie: 1.8, infiniband: 2.7, roce: 3, ethernet: 10 },
    cacheBytes: 24e6,
    blockRemoteGBps: 38,
    blockPacketGBps: 16,
  }),
  b200: like("b200", "as h200, with the links of NVLink 5 and 126 MB of L2 (NVIDIA Blackwell tuning guide)", {
    cacheBytes: 75e6,
    blockRemoteGBps: 108,
    blockPacketGBps: 44,
  }),
  generic: like("generic", "as h200, where nothing better is known", { uncertainty: 0.6 }),
});

/** Plans that cross hosts were measured less: of MSCCL++'s kernels on two H100 hosts, five points of three operations. */
const ACROSS_HOSTS_UNCERTAINTY = 0.4;

/** What to expect of a plan's simulated time: as the constants say, and no less across hosts. */
export function planUncertainty(parameters: SystemParameters, crossesHosts: boolean): number {
  if (!crossesHosts || parameters.uncertainty === 0) return parameters.uncertainty;
  return Math.max(parameters.uncertainty, ACROSS_HOSTS_UNCERTAINTY);
}

/**
 * Finds the parameters of a system by its accelerator: by compute capability, which a known product name stands for, or by
 * the name of a row. A device of no known architecture gets `generic`.
 * @example
 * parametersFor("NVIDIA H100 80GB HBM3").name // "h100"
 */
export function parametersFor(device: string, arch?: string): SystemParameters {
  const exact = Object.hasOwn(SYSTEMS, device) ? SYSTEMS[device] : undefined;
  if (exact !== undefined) return exact;
  const part = findPart("nvidia-gpu", device);
  switch (nvidiaGeneration(arch ?? part?.arch)) {
    case "hopper":
      return part?.key === "h200" ? H200 : SYSTEMS["h100"]!;
    case "ampere":
      return SYSTEMS["a100"]!;
    case "blackwell":
      return SYSTEMS["b200"]!;
    default:
      return SYSTEMS["generic"]!;
  }
}

/**
 * Reads parameters from a file written by `chorale tune --fit`; missing fields come from the row `base` names.
 * @throws InvalidArgumentError naming the field
 * @example
 * parseParameters({ fenceUs: 2 }).fenceUs // 2
 */
export function parseParameters(value: unknown, base = "h200"): SystemParameters {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new InvalidArgumentError("parameters", value, "an object of constants");
  const defaults = Object.hasOwn(SYSTEMS, base) ? SYSTEMS[base]! : H200;
  const given = value as Partial<SystemParameters>;
  const latencyUs =
    typeof given.latencyUs === "object" && given.latencyUs !== null
      ? { ...defaults.latencyUs, ...given.latencyUs }
      : (given.latencyUs ?? defaults.latencyUs);
  const result = systemParametersSchema.safeParse({ ...defaults, ...given, latencyUs });
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const path = issue?.path.map(String).join(".") ?? "";
  throw new InvalidArgumentError(
    path === "" ? "parameters" : path,
    path === "" ? value : issue?.path.reduce<unknown>((at, key) => (at as Record<PropertyKey, unknown>)?.[key], value),
    issue?.message ?? "simulator parameters",
  );
}
