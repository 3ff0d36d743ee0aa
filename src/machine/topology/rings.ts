/**
 * The order in which a ring of devices runs. A step is worth what it carries while all steps run at once: a direct
 * connection its width, a way over other devices that width divided by the links it borrows from their own steps. Of
 * rings with equally wide narrowest steps, the one with the fewest borrowed links wins, then the one of greatest total
 * width, then the given order.
 */
import { directPath, FAST_KINDS, isRouted, linkCost, type Path, widestPath } from "./graph.ts";
import type { Topology } from "./inventory.ts";

export interface Ring {
  readonly order: readonly string[];
  /** Narrowest step of the ring, the closing one included. Absent when the rate of a step is unknown. */
  readonly bandwidthGBps?: number;
}

/** What one step of a ring is worth. */
interface Step {
  readonly width: number;
  /** Devices on the way that pass the data on. */
  readonly relays: number;
  readonly isRateKnown: boolean;
}
type Steps = readonly (readonly Step[])[];

/** How good a ring is. */
interface Worth {
  readonly narrowest: number;
  readonly relays: number;
  readonly total: number;
}

const NO_STEP: Step = { width: 0, relays: 0, isRateKnown: true };
/** Up to this many devices the best ring is found exactly (8! / 16 orders at most). */
const EXACT_RING_LIMIT = 8;
/** Most extensions tried for a ring of direct connections of one width, above that size. */
const SEARCH_BUDGET = 50_000;
/** Most widths tried. */
const MAX_WIDTHS = 8;

/**
 * Orders devices in a ring whose narrowest step is as wide as possible: exactly up to 8 devices; above, by a bounded
 * search among direct connections, else by widest next neighbour and 2-opt exchanges.
 * @throws InvalidArgumentError for an id that is no node
 */
export function ringOrder(topology: Topology, devices: readonly string[]): Ring {
  return bestRing(devices, stepsOf(topology, devices)).ring;
}

/**
 * Gives up to `limit` rings over distinct direct links: what a collective needs to use several links of a device at
 * once. On a switched fabric all rings are equal, so one is given.
 */
export function ringOrders(topology: Topology, devices: readonly string[], limit = 8): Ring[] {
  const rings = [ringOrder(topology, devices)];
  const index = new Map(devices.map((id, i) => [id, i]));
  const direct = topology.links.filter((l) => FAST_KINDS.has(l.kind) && index.has(l.a) && index.has(l.b));
  if (direct.length === 0 || devices.length < 4) return rings;
  let left = direct;
  while (rings.length < limit) {
    const last = rings.at(-1) as Ring;
    const used = new Set(last.order.map((id, i) => [id, last.order[(i + 1) % last.order.length]].sort().join(" ")));
    left = left.filter((link) => !used.has([link.a, link.b].sort().join(" ")));
    const steps = devices.map(() => devices.map(() => NO_STEP));
    for (const link of left) {
      const [a, b] = [index.get(link.a) as number, index.get(link.b) as number];
      const { bandwidthGBps, isRateKnown } = linkCost(link);
      if (bandwidthGBps <= (steps[a]?.[b]?.width ?? 0)) continue;
      const step = { width: bandwidthGBps, relays: 0, isRateKnown };
      (steps[a] as Step[])[b] = step;
      (steps[b] as Step[])[a] = step;
    }
    const { ring, worth } = bestRing(devices, steps);
    if (worth.narrowest === 0) break;
    rings.push(ring);
  }
  return rings;
}

function bestRing(devices: readonly string[], steps: Steps): { ring: Ring; worth: Worth } {
  const size = devices.length;
  const order =
    size <= EXACT_RING_LIMIT ? exactRing(size, steps) : (directRing(size, steps) ?? greedyRing(size, steps));
  const worth = worthOf(order, steps);
  const known = order.length > 1 && ringSteps(order, steps).every((step) => step.isRateKnown);
  return {
    ring: { order: order.map((i) => devices[i] as string), ...(known && { bandwidthGBps: worth.narrowest }) },
    worth,
  };
}

/** The value of each pair as a step: the better of the direct connection and of the way over other devices. */
function stepsOf(topology: Topology, devices: readonly string[]): Steps {
  const rows = devices.map(() => devices.map(() => NO_STEP));
  const routed = new Set(topology.links.flatMap((link) => (isRouted(link.kind) ? [link.a, link.b] : [])));
  for (const [i, a] of devices.entries()) {
    for (const [j, b] of devices.entries()) {
      if (j <= i) continue;
      const step = stepOf(topology, a, b, routed.has(a) && routed.has(b));
      (rows[i] as Step[])[j] = step;
      (rows[j] as Step[])[i] = step;
    }
  }
  return rows;
}

function stepOf(topology: Topology, a: string, b: string, mayBeRouted: boolean): Step {
  const fast = directPath(topology, a, b);
  if (fast !== undefined) return { width: fast.bandwidthGBps, relays: 0, isRateKnown: fast.isRateKnown };
  const throughHost = stepOver(topology, directPath(topology, a, b, false));
  const overDevices = mayBeRouted ? stepOver(topology, widestPath(topology, a, b)) : NO_STEP;
  return overDevices.width > throughHost.width ? overDevices : throughHost;
}

function stepOver(topology: Topology, path: Path | undefined): Step {
  if (path === undefined) return NO_STEP;
  const kinds = new Map(topology.nodes.map((node) => [node.id, node.kind]));
  const relays = path.nodes.slice(1, -1).filter((id) => kinds.get(id) === "device").length;
  return { width: path.bandwidthGBps / (relays + 1), relays, isRateKnown: path.isRateKnown };
}

function ringSteps(order: readonly number[], steps: Steps): Step[] {
  return order.map((a, i) => steps[a]?.[order[(i + 1) % order.length] as number] ?? NO_STEP);
}

function worthOf(order: readonly number[], steps: Steps): Worth {
  if (order.length < 2) return { narrowest: 0, relays: 0, total: 0 };
  return ringSteps(order, steps).reduce<Worth>(
    ({ narrowest, relays, total }, step) => ({
      narrowest: Math.min(narrowest, step.width),
      relays: relays + step.relays,
      total: total + step.width,
    }),
    { narrowest: Number.POSITIVE_INFINITY, relays: 0, total: 0 },
  );
}

/** Differences below this are rounding, not width. */
const EPSILON_GBPS = 1e-9;

function isBetter(a: Worth, b: Worth): boolean {
  if (Math.abs(a.narrowest - b.narrowest) > EPSILON_GBPS) return a.narrowest > b.narrowest;
  if (a.relays !== b.relays) return a.relays < b.relays;
  return a.total > b.total + EPSILON_GBPS;
}

function exactRing(size: number, steps: Steps): number[] {
  let best = Array.from({ length: size }, (_, i) => i);
  let worth = worthOf(best, steps);
  const extend = (order: number[], narrow: number): void => {
    if (order.length === size) {
      const own = worthOf(order, steps);
      if (isBetter(own, worth)) [best, worth] = [[...order], own];
      return;
    }
    const last = order.at(-1) as number;
    for (let next = 1; next < size; next++) {
      const step = Math.min(narrow, steps[last]?.[next]?.width ?? 0);
      if (order.includes(next) || step < worth.narrowest) continue;
      order.push(next);
      extend(order, step);
      order.pop();
    }
  };
  if (size > 2) extend([0], Number.POSITIVE_INFINITY);
  return best;
}

/**
 * A ring of direct connections, each at least as wide as the greatest width for which one is found: depth first, widest
 * next, then the device with the fewest ways left (Warnsdorff's rule), within a budget.
 */
function directRing(size: number, steps: Steps): number[] | undefined {
  const all = steps.flatMap((row) => row.flatMap((step) => (step.relays === 0 && step.width > 0 ? [step.width] : [])));
  const widths = [...new Set(all)].sort((a, b) => b - a).slice(0, MAX_WIDTHS);
  for (const least of widths) {
    const near = steps.map((row) => row.flatMap((s, j) => (s.relays === 0 && s.width >= least ? [j] : [])));
    if (near.some((list) => list.length < 2) || !isConnected(near)) continue;
    const found = hamiltonian(size, near, steps);
    if (found !== undefined) return found;
  }
  return undefined;
}

function isConnected(near: readonly (readonly number[])[]): boolean {
  const seen = new Set([0]);
  for (const node of seen) for (const next of near[node] ?? []) seen.add(next);
  return seen.size === near.length;
}

function hamiltonian(size: number, near: readonly (readonly number[])[], steps: Steps): number[] | undefined {
  const order = [0];
  const taken = new Set(order);
  let budget = SEARCH_BUDGET;
  const waysLeft = (node: number) => (near[node] ?? []).filter((next) => !taken.has(next)).length;
  const extend = (): boolean => {
    const last = order.at(-1) as number;
    if (order.length === size) return (near[last] ?? []).includes(0);
    const width = (next: number) => steps[last]?.[next]?.width ?? 0;
    const choices = (near[last] ?? [])
      .filter((next) => !taken.has(next))
      .map((next) => ({ next, width: width(next), ways: waysLeft(next) }))
      .sort((a, b) => b.width - a.width || a.ways - b.ways || a.next - b.next);
    for (const { next } of choices) {
      if (budget-- <= 0) return false;
      order.push(next);
      taken.add(next);
      if (extend()) return true;
      order.pop();
      taken.delete(next);
    }
    return false;
  };
  return extend() ? order : undefined;
}

function greedyRing(size: number, steps: Steps): number[] {
  const width = (a: number, b: number) => steps[a]?.[b]?.width ?? 0;
  const order = [0];
  const left = new Set(Array.from({ length: size - 1 }, (_, i) => i + 1));
  while (left.size > 0) {
    const last = order.at(-1) as number;
    let next = -1;
    for (const candidate of left) if (next < 0 || width(last, candidate) > width(last, next)) next = candidate;
    order.push(next);
    left.delete(next);
  }
  const at = (i: number) => order[(i + size) % size] as number;
  for (let round = 0; round < 4; round++) {
    let changed = false;
    for (let i = 0; i < size - 1; i++) {
      for (let j = i + 1; j < size; j++) {
        const now = Math.min(width(at(i), at(i + 1)), width(at(j), at(j + 1)));
        const then = Math.min(width(at(i), at(j)), width(at(i + 1), at(j + 1)));
        if (then <= now) continue;
        order.splice(i + 1, j - i, ...order.slice(i + 1, j + 1).reverse());
        changed = true;
      }
    }
    if (!changed) break;
  }
  return order;
}
