/**
 * Prefill and decoding on devices of their own (DistServe, arXiv 2401.09670; Splitwise, arXiv 2311.18677): how many workers
 * of which size read prompts, how many generate, and what is won over devices that do both.
 */
import { InvalidArgumentError, UnsupportedError } from "../core/index.ts";
import type { Inventory } from "../machine/topology/index.ts";
import { checkServiceLevel, largestLoad, type ServiceLevel } from "./decide.ts";
import { kvBytesByLayer } from "./memory/kv-cache.ts";
import { Fabric } from "./placement/fabric.ts";
import type { InferenceEstimates, ShardingPlan } from "./plan.ts";
import { type PlanRequest, planModel } from "./plan-model.ts";
import { resolveWorkload } from "./search/workload.ts";

/** One kind of worker: a replica of the model that only reads prompts, or only generates. */
export interface WorkerPool {
  readonly numWorkers: number;
  readonly devicesPerWorker: number;
  /** Of one worker. */
  readonly plan: ShardingPlan;
  /** Sequences of a worker at once. */
  readonly batch: number;
  /** Requests a second that all workers of the pool take. */
  readonly requestsPerSecond: number;
}

/** A machine divided between the two. */
export interface Disaggregated {
  readonly prefill: WorkerPool;
  readonly decode: WorkerPool;
  readonly requestsPerSecond: number;
  /** A prompt that arrives waits for the pass that runs, and then for its own. */
  readonly ttftSeconds: number;
  readonly tpotSeconds: number;
  /** The cache of a prompt, from a prefill worker to a decode worker; under way while both compute. */
  readonly handoverBytes: number;
  readonly handoverSeconds: number;
  readonly idleDevices: number;
  /** The same promise kept by all devices doing both; undefined where they cannot keep it. */
  readonly together: { readonly requestsPerSecond: number; readonly users: number } | undefined;
}

/** A kind of worker by itself. */
interface Worker {
  readonly devices: number;
  readonly plan: ShardingPlan;
  readonly batch: number;
  readonly requestsPerSecond: number;
  readonly seconds: number;
}

/** Most prompts that a prefill worker reads in one pass. */
const MAX_PROMPTS = 64;
/** Most sequences that a decode worker generates for. */
const MAX_SEQUENCES = 1 << 14;

/** Accelerators of each host. */
function hostSizes(inventory: Inventory): readonly number[] {
  const hostOf = new Map(inventory.topology.nodes.map((node) => [node.id, node.host ?? 0]));
  const sizes = new Map<number, number>();
  for (const device of inventory.devices) {
    if (!device.visible || device.family === "cpu") continue;
    const host = hostOf.get(device.id) ?? 0;
    sizes.set(host, (sizes.get(host) ?? 0) + 1);
  }
  return [...sizes.values()];
}

/** Sizes of workers: what divides a host, and whole hosts by powers of two, so that workers of two sizes leave no gaps. */
function workerSizes(hosts: readonly number[]): readonly number[] {
  const most = Math.max(...hosts);
  const total = hosts.reduce((sum, size) => sum + size, 0);
  const sizes = Array.from({ length: most }, (_, at) => at + 1).filter((size) => most % size === 0);
  for (let size = 2 * most; size < total; size *= 2) sizes.push(size);
  return sizes;
}

/** Whether workers of two sizes fit on hosts: those larger than a host take whole ones, others share. */
function fitsHosts(hosts: readonly number[], workers: readonly { size: number; count: number }[]): boolean {
  const whole = [...hosts].sort((a, b) => b - a);
  const free = [...whole];
  for (const { size, count } of [...workers].sort((a, b) => b.size - a.size)) {
    for (let worker = 0; worker < count; worker++) {
      let need = size;
      if (size > (whole[0] ?? 0)) {
        for (let at = 0; at < free.length && need > 0; at++) {
          if (free[at] !== whole[at]) continue;
          need -= free[at] ?? 0;
          free[at] = 0;
        }
      } else {
        const at = free.findIndex((left) => left >= size);
        if (at >= 0) {
          free[at] = (free[at] ?? 0) - size;
          need = 0;
        }
      }
      if (need > 0) return false;
    }
  }
  return true;
}

const inference = (plan: ShardingPlan | undefined): InferenceEstimates | undefined =>
  plan?.estimates.kind === "inference" ? plan.estimates : undefined;

/** The best of what `make` gives for 1, 2, 4, ... sequences, by requests a second, until it gives none. */
function bestBatch(most: number, make: (batch: number) => Worker | undefined): Worker | undefined {
  let best: Worker | undefined;
  let least = 0;
  let beyond = 1;
  for (; beyond <= most; beyond *= 2) {
    const worker = make(beyond);
    if (worker === undefined) break;
    if (best === undefined || worker.requestsPerSecond > best.requestsPerSecond) best = worker;
    least = beyond;
  }
  while (least > 0 && beyond <= most && beyond - least > Math.max(1, least / 32)) {
    const middle = Math.floor((least + beyond) / 2);
    const worker = make(middle);
    if (worker === undefined) beyond = middle;
    else {
      least = middle;
      if (best === undefined || worker.requestsPerSecond > best.requestsPerSecond) best = worker;
    }
  }
  return best;
}

/**
 * Divides a machine between workers that read prompts and workers that generate: every pair of sizes, each worker's layout
 * and batch as `planModel` finds them, as many of either as serve the most requests a second within the service level.
 * @returns undefined when no division fits the memory and keeps the level
 * @throws InvalidArgumentError for training, a request that generates nothing, fixed ranks, dp or batch
 * @throws UnsupportedError for a machine of fewer than two accelerators
 * @example
 * import { disaggregate, modelPreset } from "chorale/planner";
 * import { presetInventory } from "chorale/topology";
 * const request = { model: modelPreset("llama-3.1-8b"), inventory: presetInventory("hgx-h100-8"), contextTokens: 4096 };
 * const divided = disaggregate(request, { ttft: 1, tpot: 0.02 });
 * divided?.prefill.numWorkers; // of the eight GPUs, those that read prompts
 */
export function disaggregate(request: PlanRequest, level: ServiceLevel = {}): Disaggregated | undefined {
  checkServiceLevel(level);
  checkRequest(request);
  const { model, inventory } = request;
  const workload = resolveWorkload(model, { ...request, batch: 1 }, "throughput");
  const { promptTokens, outputTokens } = workload;
  if (outputTokens === 0) throw new InvalidArgumentError("output tokens", 0, "1 or more: there is nothing to decode");
  const hosts = hostSizes(inventory);
  const total = hosts.reduce((sum, size) => sum + size, 0);
  if (total < 2) throw new UnsupportedError("prefill and decoding apart", "it needs at least two accelerators");
  const handoverBytes = kvBytesByLayer(model, {
    contextTokens: promptTokens,
    sequences: 1,
    tp: 1,
    cp: 1,
    format: workload.kv,
  }).reduce((sum, bytes) => sum + bytes, 0);
  const rate = deviceRate(inventory);
  const handover = (devices: number) => handoverBytes / (devices * rate);
  const planOf = (devices: number, own: Partial<PlanRequest>): ShardingPlan | undefined =>
    planModel({
      ...request,
      ...own,
      ranks: devices,
      constrain: { ...request.constrain, dp: 1 },
      objective: "throughput",
      top: 1,
      explainNothing: false,
    }).plans[0];
  const prefillWorker = (devices: number): Worker | undefined =>
    bestBatch(MAX_PROMPTS, (batch) => {
      const plan = planOf(devices, { batch, contextTokens: promptTokens, outputTokens: 0 });
      const seconds = (inference(plan)?.prefillMs ?? Number.POSITIVE_INFINITY) / 1e3;
      if (plan === undefined || 2 * seconds > (level.ttft ?? Number.POSITIVE_INFINITY)) return undefined;
      // Caches leave while the next prompts are read.
      const busy = Math.max(seconds, batch * handover(devices));
      return { devices, plan, batch, seconds, requestsPerSecond: batch / busy };
    });
  const decodeWorker = (devices: number): Worker | undefined =>
    bestBatch(MAX_SEQUENCES, (batch) => {
      // The whole prompt comes with its cache, but for the token to go on from.
      const plan = planOf(devices, { batch, prefixHits: 1 - 1 / promptTokens });
      const estimates = inference(plan);
      if (plan === undefined || estimates === undefined) return undefined;
      const seconds = estimates.decodeStepMs / workload.tokensPerStep / 1e3;
      if (seconds > (level.tpot ?? Number.POSITIVE_INFINITY)) return undefined;
      return { devices, plan, batch, seconds, requestsPerSecond: batch / (outputTokens * seconds) };
    });
  const sizes = workerSizes(hosts).filter((size) => size < total);
  const readers = sizes.flatMap((size) => prefillWorker(size) ?? []);
  const writers = sizes.flatMap((size) => decodeWorker(size) ?? []);
  let best: Disaggregated | undefined;
  for (const reader of readers) {
    for (const writer of writers) {
      const divided = divide(reader, writer, hosts);
      if (divided === undefined) continue;
      const { numReaders, numWriters, requestsPerSecond } = divided;
      const idleDevices = total - numReaders * reader.devices - numWriters * writer.devices;
      const gain = requestsPerSecond / (best?.requestsPerSecond ?? 0);
      if (gain < 1 - 1e-9 || (gain <= 1 + 1e-9 && idleDevices <= (best?.idleDevices ?? 0))) continue;
      best = {
        prefill: poolOf(reader, numReaders),
        decode: poolOf(writer, numWriters),
        requestsPerSecond,
        ttftSeconds: 2 * reader.seconds,
        tpotSeconds: writer.seconds,
        handoverBytes,
        handoverSeconds: handover(Math.min(reader.devices, writer.devices)),
        idleDevices,
        together: undefined,
      };
    }
  }
  return best === undefined ? undefined : { ...best, together: together(request, level) };
}

function checkRequest(request: PlanRequest): void {
  const { train, ranks, batch, constrain } = request;
  if (train !== undefined) throw new InvalidArgumentError("train", train, "nothing: only serving has prompts to read");
  if (ranks !== undefined) throw new InvalidArgumentError("ranks", ranks, "nothing: sizes of workers are searched");
  if (batch !== undefined) throw new InvalidArgumentError("batch", batch, "nothing: batches of workers are searched");
  if (constrain?.dp !== undefined)
    throw new InvalidArgumentError("constrain dp", constrain.dp, "nothing: the number of workers is searched");
}

/** Bytes a second from one device to one of another worker: over the network where there are several hosts. */
function deviceRate(inventory: Inventory): number {
  const fabric = new Fabric(inventory);
  const [first, ...others] = inventory.devices.filter(({ visible, family }) => visible && family !== "cpu");
  if (first === undefined) return 0;
  const home = fabric.place(first.id).host;
  const far = others.find((device) => fabric.place(device.id).host !== home) ?? others[0];
  return far === undefined ? 0 : (fabric.group([first.id, far.id])?.effectiveGBps ?? 0) * 1e9;
}

/** As many of either worker as together take the most requests a second, and no more of them than that needs. */
function divide(reader: Worker, writer: Worker, hosts: readonly number[]) {
  const total = hosts.reduce((sum, size) => sum + size, 0);
  let best: { numReaders: number; numWriters: number; requestsPerSecond: number } | undefined;
  for (let numReaders = 1; numReaders * reader.devices + writer.devices <= total; numReaders++) {
    const room = Math.floor((total - numReaders * reader.devices) / writer.devices);
    const reads = numReaders * reader.requestsPerSecond;
    const numWriters = Math.min(room, Math.ceil(reads / writer.requestsPerSecond - 1e-9));
    const requestsPerSecond = Math.min(reads, numWriters * writer.requestsPerSecond);
    if (best !== undefined && requestsPerSecond <= best.requestsPerSecond * (1 + 1e-9)) continue;
    const workers = [
      { size: reader.devices, count: numReaders },
      { size: writer.devices, count: numWriters },
    ];
    if (fitsHosts(hosts, workers)) best = { numReaders, numWriters, requestsPerSecond };
  }
  return best;
}

function poolOf({ devices, plan, batch, requestsPerSecond }: Worker, numWorkers: number): WorkerPool {
  return { numWorkers, devicesPerWorker: devices, plan, batch, requestsPerSecond: numWorkers * requestsPerSecond };
}

function together(request: PlanRequest, level: ServiceLevel): Disaggregated["together"] {
  const load = largestLoad(request, level);
  const estimates = inference(load?.plan);
  if (load === undefined || estimates === undefined) return undefined;
  return { users: load.users, requestsPerSecond: load.users / (estimates.requestMs / 1e3) };
}
