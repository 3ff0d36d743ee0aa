/**
 * ASTRA-sim's network description (analytical backend, `inputs/network/analytical/*.yml`): per dimension a topology
 * (Ring, Switch or FullyConnected), a number of NPUs, a bandwidth in GB/s and a latency in ns. Read as an inventory: the
 * dimensions are nested, the first is the innermost, and NPU ids count through the first dimension fastest.
 *
 * In a Switch the latency is that of one hop, from NPU to switch or back; a message takes two. A link's bandwidth is per
 * direction, and its GB are 2^30 bytes (`common/NetworkFunction.cpp`). In a FullyConnected dimension every pair has a link
 * of its own. Unlike ASTRA-sim, which stores and forwards whole chunks at every hop and serves a link first come first
 * served, messages are cut through and share links fairly.
 */
import { FormatError } from "../../core/index.ts";
import {
  INVENTORY_SCHEMA_VERSION,
  type Inventory,
  type Link,
  type TopologyNode,
} from "../../machine/topology/index.ts";
import { parseNetworkYaml, type YamlValue } from "./network-yaml.ts";

const SHAPES = ["Ring", "Switch", "FullyConnected"] as const;
type Shape = (typeof SHAPES)[number];
/** More are refused: links grow with the square of the NPUs, and each takes about a kilobyte. */
const MAX_NPUS = 4096;
const MAX_LINKS = 250_000;
const MAX_DIMENSIONS = 16;

interface Dimension {
  readonly shape: Shape;
  readonly size: number;
  readonly bandwidthGBps: number;
  readonly latencyUs: number;
}

function list(map: ReadonlyMap<string, YamlValue>, key: string, where: string): readonly (string | number)[] {
  const value = map.get(key);
  if (value === undefined) throw new FormatError(where, "is missing", { field: key });
  return typeof value === "object" ? value : [value];
}

function numbers(
  map: ReadonlyMap<string, YamlValue>,
  key: string,
  where: string,
  dims: number,
  least: number,
  most: number,
): number[] {
  const values = list(map, key, where);
  if (values.length !== dims)
    throw new FormatError(where, `has ${values.length} entries for ${dims} dimensions`, { field: key });
  return values.map((value) => {
    if (typeof value !== "number" || !(value >= least && value <= most))
      throw new FormatError(where, `has ${value}; expected ${least} to ${most}`, { field: key });
    return value;
  });
}

/**
 * Reads an ASTRA-sim network file as an inventory of generic accelerators `npu0`, `npu1`, ….
 * @throws FormatError naming the field
 * @example
 * readAstraNetwork("topology: [ Ring ]\nnpus_count: [ 4 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]").devices.length // 4
 */
export function readAstraNetwork(text: string, where = "network.yml"): Inventory {
  const map = parseNetworkYaml(text, where);
  const shapes = list(map, "topology", where).map((name) => {
    const shape = SHAPES.find((candidate) => candidate === name);
    if (shape === undefined)
      throw new FormatError(where, `has ${name}; expected ${SHAPES.join(", ")}`, { field: "topology" });
    return shape;
  });
  if (shapes.length === 0 || shapes.length > MAX_DIMENSIONS)
    throw new FormatError(where, `has ${shapes.length} dimensions; expected 1 to ${MAX_DIMENSIONS}`, {
      field: "topology",
    });
  const sizes = numbers(map, "npus_count", where, shapes.length, 1, MAX_NPUS);
  const bandwidths = numbers(map, "bandwidth", where, shapes.length, 1e-6, 1e9);
  const latencies = numbers(map, "latency", where, shapes.length, 0, 1e12);
  for (const size of sizes)
    if (!Number.isInteger(size)) throw new FormatError(where, `has ${size}`, { field: "npus_count" });
  const dims: Dimension[] = shapes.map((shape, i) => ({
    shape,
    size: sizes[i]!,
    bandwidthGBps: (bandwidths[i]! * 2 ** 30) / 1e9,
    // A schema of positive latencies: zero becomes a femtosecond.
    latencyUs: Math.max(latencies[i]! / 1000, 1e-9),
  }));
  const total = dims.reduce((product, dim) => product * dim.size, 1);
  if (total > MAX_NPUS)
    throw new FormatError(where, `has ${total} NPUs; at most ${MAX_NPUS} are simulated`, { field: "npus_count" });
  const numLinks = dims.reduce(
    (sum, dim) => sum + (dim.shape === "FullyConnected" ? (total * (dim.size - 1)) / 2 : total),
    0,
  );
  if (numLinks > MAX_LINKS) throw new FormatError(where, `has ${numLinks} links; at most ${MAX_LINKS} are simulated`);
  return build(dims, total, where);
}

function build(dims: readonly Dimension[], total: number, where: string): Inventory {
  const nodes: TopologyNode[] = [];
  const links: Link[] = [];
  for (let npu = 0; npu < total; npu++) nodes.push({ id: `npu${npu}`, kind: "device", host: 0 });
  let stride = 1;
  dims.forEach((dim, d) => {
    const common = { kind: "xgmi", bandwidthGBps: dim.bandwidthGBps, latencyUs: dim.latencyUs } as const;
    for (let npu = 0; npu < total; npu++) {
      const at = Math.floor(npu / stride) % dim.size;
      const first = npu - at * stride;
      const peer = (position: number) => `npu${first + position * stride}`;
      if (dim.size === 1) continue;
      if (dim.shape === "Ring") {
        if (at + 1 < dim.size) links.push({ a: `npu${npu}`, b: peer(at + 1), ...common });
        else if (dim.size > 2) links.push({ a: `npu${npu}`, b: peer(0), ...common });
      } else if (dim.shape === "FullyConnected") {
        for (let other = at + 1; other < dim.size; other++) links.push({ a: `npu${npu}`, b: peer(other), ...common });
      } else {
        const id = `switch${d}.${first}`;
        if (at === 0) nodes.push({ id, kind: "nvswitch", host: 0 });
        links.push({ a: `npu${npu}`, b: id, ...common, kind: "nvlink" });
      }
    }
    stride *= dim.size;
  });
  return {
    schemaVersion: INVENTORY_SCHEMA_VERSION,
    devices: Array.from({ length: total }, (_, index) => ({
      id: `npu${index}`,
      family: "nvidia-gpu",
      vendor: "generic",
      name: "generic NPU",
      index,
      visible: true,
    })),
    topology: { nodes, links },
    environment: { source: where },
    warnings: [],
  };
}
