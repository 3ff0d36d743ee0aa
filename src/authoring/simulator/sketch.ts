/**
 * Schedules at scale: who sends what to whom, step by step, without buffers or strands. A plan of 1,024 ranks has millions
 * of operations; a sketch has a rule. It runs on the same network and pays the same costs for a message (start, latency,
 * fence, signal, wait) as a plan's put and signal do.
 *
 * Where the rule looks the same from every rank of an orbit, so does its timing, and one rank of each orbit is simulated
 * for all: `symmetryOf` proves that before it is used. It checks, for the shift r -> r + k of all ranks, that every rank's
 * messages are those of its image, shifted, and that the machine's routes are too (same capacities and latencies, link by
 * link, and links that map one to one). No proof, no shortcut.
 */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { type FlowClass, Network } from "./flow-sharing.ts";
import type { SystemParameters } from "./parameters.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";

/** One step of a lane: send, then wait; either may be absent. */
export interface SketchStep {
  readonly sendTo?: number;
  readonly bytes?: number;
  /** Lane of the receiver that this message is for; the sender's own lane number by default. */
  readonly toLane?: number;
  /** Waits for the next message of this rank on this lane. */
  readonly receiveFrom?: number;
  /** Bytes that are read and combined after the message has come. */
  readonly reduceBytes?: number;
}
export interface Sketch {
  readonly name: string;
  readonly numRanks: number;
  /** Concurrent sequences of each rank. */
  readonly numLanes: number;
  readonly numSteps: (rank: number, lane: number) => number;
  readonly step: (rank: number, lane: number, index: number) => SketchStep;
  /** A shift under which the sketch is claimed to be the same; checked before it is used. */
  readonly shift?: number;
}

export interface SketchRun {
  readonly timeUs: number;
  readonly messages: number;
  /** Ranks that were simulated one by one; the others are their images. */
  readonly simulatedRanks: number;
  readonly shift: number | undefined;
}

interface Lane {
  readonly rank: number;
  readonly lane: number;
  index: number;
  time: number;
  sent: boolean;
  /** The message that it waited for has come. */
  handed: boolean;
}

interface Way {
  readonly flows: FlowClass;
  readonly efficiency: number;
  readonly startUs: number;
  readonly holdUs: number;
  readonly latencyUs: number;
}

/** Steps of the whole sketch that a proof of symmetry may look at. */
const MAX_PROVEN_STEPS = 20_000_000;

/**
 * Proves that shifting all ranks by `sketch.shift` changes nothing.
 * @returns the shift, or undefined where there is none or the proof fails
 */
export function symmetryOf(sketch: Sketch, machine: SimulatedMachine): number | undefined {
  const { shift, numRanks, numLanes } = sketch;
  if (shift === undefined || shift < 1 || shift >= numRanks || numRanks % shift !== 0) return undefined;
  const image = (rank: number) => (rank + shift) % numRanks;
  const linkImage = new Map<number, number>();
  const provenRoutes = new Set<number>();
  const sameRoute = (from: number, to: number): boolean => {
    const key = from * numRanks + to;
    if (provenRoutes.has(key)) return true;
    const a = machine.route(from, to);
    const b = machine.route(image(from), image(to));
    if (a.links.length !== b.links.length || a.latencyUs !== b.latencyUs || a.efficiency !== b.efficiency) return false;
    for (let i = 0; i < a.links.length; i++) {
      const [x, y] = [a.links[i]!, b.links[i]!];
      if (machine.links[x]!.capacityGBps !== machine.links[y]!.capacityGBps) return false;
      const known = linkImage.get(x);
      if (known !== undefined && known !== y) return false;
      linkImage.set(x, y);
    }
    provenRoutes.add(key);
    return true;
  };
  let steps = 0;
  for (let rank = 0; rank < numRanks; rank++) {
    for (let lane = 0; lane < numLanes; lane++) {
      const count = sketch.numSteps(rank, lane);
      steps += count;
      if (steps > MAX_PROVEN_STEPS || count !== sketch.numSteps(image(rank), lane)) return undefined;
      for (let i = 0; i < count; i++) {
        const a = sketch.step(rank, lane, i);
        const b = sketch.step(image(rank), lane, i);
        const shifted = (peer: number | undefined) => (peer === undefined ? undefined : image(peer));
        if (shifted(a.sendTo) !== b.sendTo || shifted(a.receiveFrom) !== b.receiveFrom) return undefined;
        if (a.bytes !== b.bytes || a.toLane !== b.toLane || a.reduceBytes !== b.reduceBytes) return undefined;
        if (a.sendTo !== undefined && !sameRoute(rank, a.sendTo)) return undefined;
      }
    }
  }
  // Every link must come round to itself after as many steps as there are images of a rank, and not before: a link that
  // stays where it is carries the flows of all images, not of one.
  for (const link of linkImage.keys()) {
    let at = linkImage.get(link);
    let length = 1;
    for (; at !== undefined && at !== link && length <= numRanks; length++) at = linkImage.get(at);
    if (at !== link || length !== numRanks / shift) return undefined;
  }
  return shift;
}

/**
 * Runs a sketch.
 * @throws InvalidArgumentError when the machine has fewer devices than the sketch has ranks
 */
export function runSketch(
  sketch: Sketch,
  machine: SimulatedMachine,
  parameters: SystemParameters,
  useSymmetry = true,
): SketchRun {
  if (machine.devices.length < sketch.numRanks) {
    throw new InvalidArgumentError(
      "machine",
      described(`${machine.devices.length} devices`),
      `${sketch.numRanks} or more`,
    );
  }
  const shift = useSymmetry ? symmetryOf(sketch, machine) : undefined;
  return new SketchRunner(sketch, machine, parameters, shift).run();
}

class SketchRunner {
  readonly #sketch: Sketch;
  readonly #machine: SimulatedMachine;
  readonly #p: SystemParameters;
  readonly #shift: number | undefined;
  readonly #ranks: number;
  readonly #net: Network;
  readonly #lanes: Lane[] = [];
  /** Messages that have come and were not yet received, and who waits, by receiver, lane and sender. */
  readonly #arrived = new Map<number, number>();
  readonly #waiting = new Map<number, Lane>();
  /** Links of the same orbit, as one: the orbit's first. */
  readonly #orbit: Int32Array;
  readonly #ways = new Map<number, Way>();
  #messages = 0;

  constructor(sketch: Sketch, machine: SimulatedMachine, parameters: SystemParameters, shift: number | undefined) {
    this.#sketch = sketch;
    this.#machine = machine;
    this.#p = parameters;
    this.#shift = shift;
    this.#ranks = shift ?? sketch.numRanks;
    this.#net = new Network(machine.capacities());
    this.#orbit = new Int32Array(machine.links.length).fill(-1);
    if (shift !== undefined) this.#findOrbits(shift);
    for (let rank = 0; rank < this.#ranks; rank++) {
      for (let lane = 0; lane < sketch.numLanes; lane++)
        this.#lanes.push({ rank, lane, index: 0, time: parameters.launchUs, sent: false, handed: false });
    }
  }

  /** Names every link by the first of its orbit, following the routes of the representatives around. */
  #findOrbits(shift: number): void {
    const { numRanks, numLanes } = this.#sketch;
    for (let rank = 0; rank < shift; rank++) {
      for (let lane = 0; lane < numLanes; lane++) {
        const seen = new Set<number>();
        for (let i = 0; i < this.#sketch.numSteps(rank, lane); i++) {
          const { sendTo } = this.#sketch.step(rank, lane, i);
          if (sendTo === undefined || seen.has(sendTo)) continue;
          seen.add(sendTo);
          for (let k = 0; k < numRanks; k += shift) {
            const base = this.#machine.route(rank, sendTo).links;
            const links = this.#machine.route((rank + k) % numRanks, (sendTo + k) % numRanks).links;
            links.forEach((link, at) => {
              const name = this.#orbit[base[at]!]! >= 0 ? this.#orbit[base[at]!]! : base[at]!;
              if (this.#orbit[link]! < 0) this.#orbit[link] = name;
            });
          }
        }
      }
    }
  }

  /** The simulated rank that stands for a rank. */
  #standIn(rank: number): number {
    return rank % this.#ranks;
  }

  #key(receiver: number, lane: number, sender: number): number {
    // A message from an image of a rank is that rank's: senders are told apart by their distance from the receiver.
    const { numRanks, numLanes } = this.#sketch;
    const distance = (sender - receiver + numRanks) % numRanks;
    return (this.#standIn(receiver) * numLanes + lane) * numRanks + distance;
  }

  run(): SketchRun {
    for (const lane of this.#lanes) this.#net.at(lane.time, () => this.#advance(lane));
    this.#net.run();
    const end = this.#lanes.reduce((latest, lane) => Math.max(latest, lane.time), 0);
    const times = this.#sketch.numRanks / this.#ranks;
    return {
      timeUs: end + this.#p.endUs,
      messages: this.#messages * times,
      simulatedRanks: this.#ranks,
      shift: this.#shift,
    };
  }

  #advance(lane: Lane): void {
    if (lane.time < this.#net.now) lane.time = this.#net.now;
    const { rank } = lane;
    const count = this.#sketch.numSteps(rank, lane.lane);
    while (lane.index < count) {
      const step = this.#sketch.step(rank, lane.lane, lane.index);
      if (step.sendTo !== undefined && !lane.sent) {
        lane.sent = true;
        this.#send(lane, step, step.sendTo);
        return;
      }
      if (step.receiveFrom !== undefined) {
        const key = this.#key(rank, lane.lane, step.receiveFrom);
        if (lane.handed) lane.handed = false;
        else {
          const here = this.#arrived.get(key) ?? 0;
          if (here === 0) {
            this.#waiting.set(key, lane);
            return;
          }
          this.#arrived.set(key, here - 1);
        }
        lane.time +=
          this.#p.waitUs + this.#p.syncUs + (step.reduceBytes ?? 0) / (2000 * this.#p.blockLocalGBps * SKETCH_BLOCKS);
      }
      lane.index++;
      lane.sent = false;
    }
  }

  /** The way of messages from a simulated rank to another: its flows, and what they pay. */
  #way(from: number, to: number): Way {
    const key = from * this.#sketch.numRanks + to;
    let way = this.#ways.get(key);
    if (way === undefined) {
      const p = this.#p;
      const route = this.#machine.route(from, to);
      const links =
        this.#shift === undefined
          ? route.links
          : route.links.map((link) => (this.#orbit[link]! < 0 ? link : this.#orbit[link]!));
      const cap = route.crossesHosts ? Number.POSITIVE_INFINITY : p.blockRemoteGBps * SKETCH_BLOCKS;
      way = {
        flows: this.#net.classOf(links, links.join(), cap),
        efficiency: route.efficiency ?? p.storeEfficiency,
        startUs: p.opUs + (route.crossesHosts ? p.portPushUs + p.proxyUs : p.loadUs),
        holdUs: p.signalUs + (route.crossesHosts ? 0 : p.fenceUs),
        latencyUs: route.latencyUs,
      };
      this.#ways.set(key, way);
    }
    return way;
  }

  #send(lane: Lane, step: SketchStep, to: number): void {
    const way = this.#way(lane.rank, to);
    const bytes = (step.bytes ?? 0) / way.efficiency;
    const key = this.#key(to, step.toLane ?? lane.lane, lane.rank);
    this.#messages++;
    const go = () =>
      this.#net.startIn(way.flows, bytes, () => {
        // The fence holds the lane; the signal goes after it.
        lane.time = this.#net.now + way.holdUs;
        this.#net.at(lane.time + way.latencyUs, () => {
          const waiting = this.#waiting.get(key);
          if (waiting === undefined) {
            this.#arrived.set(key, (this.#arrived.get(key) ?? 0) + 1);
            return;
          }
          this.#waiting.delete(key);
          waiting.handed = true;
          this.#advance(waiting);
        });
        if (step.receiveFrom === undefined) {
          lane.index++;
          lane.sent = false;
        }
        this.#advance(lane);
      });
    const start = lane.time + way.startUs;
    if (start <= this.#net.now) go();
    else this.#net.at(start, go);
  }
}

/** Thread blocks that work on a lane's message together. */
const SKETCH_BLOCKS = 32;
