/** The supervisor's side of ranks on other hosts: each host's launcher starts them and passes on what they say. */
import { InvalidArgumentError, invariant, UnavailableError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { afterRunning, type RunningTimer } from "../comm/index.ts";
import { type Introduction, PeerDoor, type PeerSocket } from "../rendezvous/index.ts";
import type { ElasticHosts } from "./elastic-hosts.ts";
import { PLACE_VARIABLES } from "./generation.ts";
import type { MirrorWay } from "./host-side.ts";
import type { Place, ToRank } from "./messages.ts";
import { NodeLink, type NodeMessage, type WorldEnd } from "./node-link.ts";
import { IS_TAKEN, introductionOf, type NodePlan, sayWhenLong } from "./node-options.ts";
import { BaseHost } from "./rank-host-base.ts";
import { fromErrorRecord } from "./remote-error.ts";
import { recordFlight, recordsFlight } from "./write-flight-file.ts";

const LOST_EXIT = 1;
/** How long the last flight dump of another host may take to come, ms. */
const LAST_FLIGHT_MS = 1_000;
/** As `launch()` allows. */
const MAX_HOST_RANKS = 256;

type MirrorMessage = Extract<NodeMessage, { kind: "mirror" }>;

/** A rank on another host. */
export class RemoteRank extends BaseHost {
  readonly kind = "process";
  readonly #owner: RemoteNode;
  readonly #slot: number;

  constructor(owner: RemoteNode, slot: number) {
    super();
    this.#owner = owner;
    this.#slot = slot;
  }

  get node(): number {
    return this.#owner.node;
  }

  get hostLost(): boolean {
    return this.#owner.lost !== undefined;
  }

  /** Starts another rank on the same host. @throws UnavailableError when the host is gone */
  again(): RemoteRank {
    return this.#owner.start();
  }

  send(message: ToRank): void {
    this.#owner.send({ kind: "to-rank", slot: this.#slot, message: this.#owner.published(message) });
  }

  setIdle(): void {}

  terminate(): void {
    if (!this.exited) this.#owner.send({ kind: "terminate", slot: this.#slot });
  }

  receive(message: NodeMessage): void {
    try {
      if (message.kind === "from-rank") this.take(message.message);
      else if (message.kind === "crash") this.crash(fromErrorRecord(message.error));
      else if (message.kind === "exit") {
        this.end(message.exitCode, message.reason);
        // Its node keeps it, and a listener leads to a generation.
        this.listen(undefined);
      }
    } catch (error) {
      this.crash(error);
      this.terminate();
    }
  }

  lost(reason: string): void {
    this.end(LOST_EXIT, reason);
  }
}

/** Another host of the world. */
class RemoteNode {
  readonly node: number;
  readonly #plan: NodePlan;
  readonly #link: NodeLink;
  readonly #ranks: RemoteRank[] = [];
  readonly #onHello: (node: RemoteNode) => void;
  readonly #onMirror: (node: RemoteNode, message: MirrorMessage) => void;
  #name: string;
  #numRanks: number | undefined;
  /** The last generation of which it sent a flight dump. */
  #flightOf = 0;
  /** Dumps that it was asked for and has not sent. */
  #numAsked = 0;
  /** Called when its last dump is here, or will not come. */
  #heardLast: (() => void) | undefined;
  #lost: string | undefined;

  constructor(
    node: number,
    socket: PeerSocket,
    plan: NodePlan,
    {
      onHello,
      onMirror,
    }: {
      readonly onHello: (node: RemoteNode) => void;
      readonly onMirror: (node: RemoteNode, message: MirrorMessage) => void;
    },
  ) {
    this.node = node;
    this.#plan = plan;
    this.#name = `host ${node}`;
    this.#onHello = onHello;
    this.#onMirror = onMirror;
    this.#link = new NodeLink(socket, `the launcher of host ${node}`, plan.hostTimeoutMs, {
      message: (message) => this.#receive(message),
      lost: (reason) => this.#gone(`its host is lost: the launcher of ${this.#name} ${reason}`),
    });
  }

  /** Number of ranks that it was asked to start; `undefined` before it has said so. */
  get numRanks(): number | undefined {
    return this.#numRanks;
  }
  /** Whether it can have ranks: it has said how many, and is not lost. */
  get isHere(): boolean {
    return this.#numRanks !== undefined && this.#lost === undefined;
  }
  get lost(): string | undefined {
    return this.#lost;
  }
  get localAddress(): string {
    return this.#link.localAddress;
  }

  start(): RemoteRank {
    if (this.#lost !== undefined) {
      throw new UnavailableError(`host ${this.node}`, this.#lost, 'Use onFailure "shrink" to go on without it.');
    }
    const rank = new RemoteRank(this, this.#ranks.length);
    this.#link.send({ kind: "start", slot: this.#ranks.length });
    this.#ranks.push(rank);
    return rank;
  }

  send(message: NodeMessage): void {
    this.#link.send(message);
  }

  askFlight(): void {
    this.#numAsked++;
    this.#link.send({ kind: "asks-flight" });
  }

  /** The message as it may be sent in the clear. */
  published(message: ToRank): ToRank {
    if (message.kind === "run") return { ...message, job: this.#publish(message.job) };
    if (message.kind === "rebuilt") return { ...message, place: this.#publish(message.place) };
    return message;
  }

  /** Tells it that the world is over. Of a world that failed its last flight dump may still be on the way. */
  async end(failure: WorldEnd | undefined): Promise<void> {
    this.#link.send({ kind: "ended", ...(failure === undefined ? {} : { failure }) });
    const isAwaited = failure !== undefined && recordsFlight() && this.#flightOf < failure.generation;
    if (isAwaited && this.#lost === undefined) {
      this.#lost = "its world is over";
      await new Promise<void>((resolve) => {
        this.#heardLast = resolve;
        setTimeout(resolve, LAST_FLIGHT_MS).unref();
      });
    }
    this.#link.close();
  }

  #publish<P extends Place>(place: P): P {
    const { engine } = place;
    const host = this.#plan.across.publish(engine.host) as typeof engine.host;
    // What launch() was told of the environment may be secret, and this is sent in the clear.
    const env = Object.fromEntries(Object.entries(place.env).filter(([name]) => PLACE_VARIABLES.has(name)));
    return { ...place, env, engine: { ...engine, host, options: {} } };
  }

  #receive(message: NodeMessage): void {
    if (message.kind === "hello") {
      this.#name = `host ${this.node} (${message.host}, process ${message.pid})`;
      this.#numRanks = Math.min(Math.max(0, Math.floor(Number(message.ranks)) || 0), MAX_HOST_RANKS);
      if (recordsFlight()) this.#link.send({ kind: "wants-flight" });
      this.#onHello(this);
    } else if (message.kind === "flight") {
      const { dump } = message;
      const generation = Number.isSafeInteger(dump?.generation) ? dump.generation : 0;
      if (message.isAsked === true) {
        if (this.#numAsked > 0) recordFlight(() => dump, generation, [], `-host${this.node}`);
        this.#numAsked = Math.max(0, this.#numAsked - 1);
        return;
      }
      // One for each generation: its number stands in a file's name.
      if (generation <= this.#flightOf) return;
      this.#flightOf = generation;
      recordFlight(() => dump, generation, [], `-host${this.node}`);
      this.#heardLast?.();
    } else if (message.kind === "mirror") this.#onMirror(this, message);
    else if (message.kind === "leaving") this.#gone(`the launcher of ${this.#name} ${message.reason}`);
    else if ("slot" in message) this.#ranks[message.slot]?.receive(message);
  }

  #gone(reason: string): void {
    this.#heardLast?.();
    if (this.#lost !== undefined) return;
    this.#lost = reason;
    this.#link.close();
    for (const rank of this.#ranks) rank.lost(reason);
  }
}

/** The other hosts of a world. Where their number may change, some may come later, or come back. */
export class RemoteNodes implements ElasticHosts, MirrorWay {
  /** The address of this host by which one of them came. */
  readonly address: string;
  readonly minHosts: number;
  readonly waitMs: number;
  readonly #nodes: Map<number, RemoteNode>;
  readonly #door: PeerDoor | undefined;
  /** Those that ranks were started on. */
  readonly #admitted = new Set<RemoteNode>();
  #onHost: (node: number) => void = () => {};
  /** The generation whose hosts speak to each other, and who hears them on this one. */
  #mirror: { readonly generation: number; readonly receive: (message: object) => void } | undefined;

  /** @param door at which others may still come */
  constructor(nodes: Map<number, RemoteNode>, address: string, plan: NodePlan, door: PeerDoor | undefined) {
    this.#nodes = nodes;
    this.address = address;
    this.minHosts = plan.minCount ?? plan.count;
    this.waitMs = plan.joinTimeoutMs;
    this.#door = door;
  }

  get numRanks(): number {
    return this.#here().reduce((sum, { numRanks = 0 }) => sum + numRanks, 0);
  }

  get numHosts(): number {
    return 1 + this.#here().length;
  }

  get hasWaiting(): boolean {
    return this.#here().some((node) => !this.#admitted.has(node));
  }

  listen(onHost: (node: number) => void): void {
    this.#onHost = onHost;
  }

  connect(generation: number, receive: (message: object) => void): (message: object) => void {
    this.#mirror = { generation, receive };
    return (message) => this.#toMirrors({ kind: "mirror", generation, message });
  }

  /** Passes on what one host has for the others, and hears it; what is of a generation that is over is dropped. */
  relay(from: RemoteNode, message: MirrorMessage): void {
    if (message.generation !== this.#mirror?.generation) return;
    this.#toMirrors(message, from);
    this.#mirror.receive(message.message);
  }

  #toMirrors(message: MirrorMessage, but?: RemoteNode): void {
    for (const node of this.#admitted) if (node !== but && node.lost === undefined) node.send(message);
  }

  /** Hears of a host that came when the world had begun. @param ownRanks of the first host */
  came(node: RemoteNode, ownRanks: number): void {
    const numRanks = ownRanks + this.numRanks;
    if (numRanks <= MAX_HOST_RANKS) {
      this.#onHost(node.node);
      return;
    }
    const message = `with it the world would have ${numRanks} ranks, and at most ${MAX_HOST_RANKS} can be`;
    void node.end({ error: { name: "Error", message, stack: "" }, generation: 0 });
    this.#nodes.delete(node.node);
  }

  /** Asks them for what their ranks did last, which is written here. */
  askFlight(): void {
    for (const node of this.#here()) node.askFlight();
  }

  /** Starts the ranks of hosts that have none, in the order of hosts. @throws UnavailableError when a host is gone already */
  admit(): RemoteRank[] {
    const fresh = this.#here().filter((node) => !this.#admitted.has(node));
    for (const node of fresh) this.#admitted.add(node);
    return fresh.flatMap((node) => Array.from({ length: node.numRanks ?? 0 }, () => node.start()));
  }

  /** Tells them that the world is over, and how. */
  async end(failure?: WorldEnd): Promise<void> {
    this.#door?.close();
    await Promise.all([...this.#nodes.values()].map((node) => node.end(failure)));
  }

  #here(): RemoteNode[] {
    return [...this.#nodes.values()].filter(({ isHere }) => isHere).sort((a, b) => a.node - b.node);
  }

  /**
   * Listens until every other host has come; where their number may change, until enough have, and the others had their time.
   * @param ownRanks of this host
   * @throws UnavailableError when the address cannot be listened on, or naming the hosts that did not come in time
   */
  static async gather(plan: NodePlan, ownRanks: number, signal?: AbortSignal): Promise<RemoteNodes> {
    const { address, secret, count, joinTimeoutMs, tls } = plan;
    const minCount = plan.minCount ?? count;
    const mine = introductionOf(plan);
    const nodes = new Map<number, RemoteNode>();
    /** What hosts were told that this one was not. */
    const disagreeing = new Map<number, string>();
    const missing = () => {
      return Array.from({ length: count - 1 }, (_, i) => i + 1).filter((node) => nodes.get(node)?.isHere !== true);
    };
    let look: (node?: RemoteNode) => void = () => {};
    let remote: RemoteNodes | undefined;
    const listener = {
      onHello: (node: RemoteNode) => look(node),
      onMirror: (node: RemoteNode, message: MirrorMessage) => remote?.relay(node, message),
    };
    const door = await PeerDoor.open({
      secret,
      tls,
      ...address,
      howToChoose: "It must be an address of the host with node rank 0, at a free port (--rdzv HOST:PORT).",
      caller: "host",
      refuse: (theirs) => {
        const taken = nodes.get(theirs.from);
        const differs = differenceOf(theirs, mine);
        if (differs !== undefined) {
          disagreeing.set(theirs.from, differs);
          return differs;
        }
        disagreeing.delete(theirs.from);
        if (theirs.from < 1 || theirs.from >= count) return `host numbers go from 1 to ${count - 1}`;
        return taken !== undefined && taken.lost === undefined ? `host ${theirs.from} ${IS_TAKEN}` : undefined;
      },
      welcome: ({ from }, socket) => nodes.set(from, new RemoteNode(from, socket, plan, listener)),
    });
    const where = `${address.host}:${door.port}`;
    if (plan.onListening !== undefined) plan.onListening(door.port);
    else if (address.port === 0) process.stderr.write(`chorale: the rendezvous is at ${where}\n`);
    const all = minCount < count ? `${minCount} to ${count}` : `${count}`;
    const words = () => `waiting at ${where} for ${describeHosts(missing())} of ${all}${describeRefusals(door)}`;
    const patience = sayWhenLong(words);
    try {
      await new Promise<void>((resolve, reject) => {
        const timer = afterRunning(joinTimeoutMs, () => {
          const absent = missing();
          const [known] = absent.flatMap((node) => disagreeing.get(node) ?? []);
          if (known !== undefined && absent.every((node) => disagreeing.has(node))) {
            const what = described(`refused: ${known}`);
            settle(() =>
              reject(new InvalidArgumentError(describeHosts(absent), what, "the same command on every host")),
            );
            return;
          }
          const why = `${describeHosts(absent)} of ${all} did not come to ${where} within ${joinTimeoutMs / 1000} s${describeRefusals(door)}`;
          const how =
            "Run the same command there with its own --node-rank, and see that a firewall lets it reach that port.";
          settle(() => reject(new UnavailableError("the world", why, how)));
        });
        const onAbort = () => settle(() => reject(signal?.reason));
        const settle = (then: () => void) => {
          timer.cancel();
          lastCall?.cancel();
          signal?.removeEventListener("abort", onAbort);
          then();
        };
        let lastCall: RunningTimer | undefined;
        const isEnough = () => count - missing().length >= minCount;
        look = () => {
          if (missing().length === 0) settle(resolve);
          else if (isEnough()) {
            lastCall ??= afterRunning(plan.lastCallMs, () => {
              lastCall = undefined;
              if (isEnough()) settle(resolve);
            });
          }
        };
        signal?.addEventListener("abort", onAbort);
        look();
      });
    } catch (error) {
      const record = { name: "Error", message: `${(error as Error)?.message ?? error}`, stack: "" };
      for (const node of nodes.values()) void node.end({ error: record, generation: 0 });
      door.close();
      throw error;
    } finally {
      clearTimeout(patience);
    }
    const isWildcard = address.host === "0.0.0.0" || address.host === "::";
    const [first] = [...nodes.values()];
    invariant(first !== undefined || minCount === 1, "enough hosts have come");
    const own = isWildcard ? (first?.localAddress ?? "127.0.0.1") : address.host;
    if (plan.minCount === undefined) door.close();
    const made = new RemoteNodes(nodes, own, plan, plan.minCount === undefined ? undefined : door);
    remote = made;
    look = (node) => node !== undefined && made.came(node, ownRanks);
    return made;
  }
}

/** What a host was told otherwise than the first one, if anything. */
function differenceOf(theirs: Introduction, mine: Introduction): string | undefined {
  if (theirs.version !== mine.version) return `it runs ${theirs.version}, and host 0 ${mine.version}`;
  if (theirs.worldSize === mine.worldSize) return undefined;
  return `it was told of ${theirs.worldSize} hosts, and host 0 of ${mine.worldSize}`;
}

function describeHosts(nodes: readonly number[]): string {
  return `host${nodes.length === 1 ? "" : "s"} ${nodes.join(", ")}`;
}

function describeRefusals({ refusals }: PeerDoor): string {
  return refusals.length === 0 ? "" : `; refused: ${[...new Set(refusals)].slice(0, 5).join("; ")}`;
}
