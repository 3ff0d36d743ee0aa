/**
 * Checks a certificate: that its schedule does the collective and loads no edge for longer than it says, and that its
 * witness proves that no schedule takes less. Exact integers and fractions; one pass over the edges, one Dijkstra a rank
 * for an all-to-all. It solves nothing, and trusts nothing of whoever made the certificate.
 *
 * Reading the fields is fields.ts; what a witness proves is witness-bounds.ts. The bounds: cuts for one-to-all and all-to-one traffic; for all-reduce 2(k - 1) messages an element among k parties;
 * for all-to-all linear-programming duality (lengths of edges). docs/synthesis.md derives each.
 */
import { CERTIFICATE_SCHEMA_VERSION, CERTIFIED_COLLECTIVES, type CertifiedCollective } from "./certificate.ts";
import { Fault, fail, fraction, list, nodeOf, onlyFields, record } from "./fields.ts";
import { type CheckedNetwork, checkNetwork } from "./network.ts";
import { Rational } from "./rational.ts";
import { sealOf } from "./seal.ts";
import { boundOf, type Context, sumOf } from "./witness-bounds.ts";

/** What a check says: every fault as a sentence. `bound` is what the witness proves, `time` what the schedule takes. */
export interface CertificateCheck {
  readonly ok: boolean;
  readonly faults: readonly string[];
  readonly bound?: Rational;
  readonly time?: Rational;
}

const ROOTED: readonly CertifiedCollective[] = ["broadcast", "reduce", "scatter", "gather"];
const SHARED: readonly CertifiedCollective[] = ["all_gather", "reduce_scatter", "scatter", "gather"];

/** The load of each edge, in units of all the data. */
class Loads {
  readonly #net: CheckedNetwork;
  readonly #edgeOf: ReadonlyMap<string, number>;
  readonly #loads: Map<bigint, bigint>[];
  constructor(net: CheckedNetwork) {
    this.#net = net;
    this.#edgeOf = new Map(net.edges.map(({ from, to }, i) => [`${from} ${to}`, i]));
    this.#loads = net.edges.map(() => new Map<bigint, bigint>());
  }

  /** Loads a route between two ranks over relays and gives its ends. `through`: ranks may lie between. */
  add(value: unknown, weight: Rational, where: string, through = false): readonly [number, number] {
    const nodes = list(value, where).map((id) => nodeOf(this.#net, id, where));
    const [first, last] = [nodes[0], nodes[nodes.length - 1]];
    if (first === undefined || last === undefined || nodes.length < 2)
      return fail(`${where}: expected two nodes or more`);
    for (const [i, node] of nodes.entries()) {
      const end = i === 0 || i === nodes.length - 1;
      if (this.#net.isRank[node] !== end && !(through && !end))
        fail(`${where}: a route leads from rank to rank over relays`);
      if (i === 0) continue;
      const edge =
        this.#edgeOf.get(`${nodes[i - 1]} ${node}`) ?? fail(`${where}: there is no edge to ${this.#net.ids[node]}`);
      const sums = this.#loads[edge] as Map<bigint, bigint>;
      sums.set(weight.denominator, (sums.get(weight.denominator) ?? 0n) + weight.numerator);
    }
    return [first, last];
  }

  /** The longest that any edge is busy, seconds for 1 GB of data. */
  time(): Rational {
    let longest = Rational.ZERO;
    for (const [i, { capacity }] of this.#net.edges.entries()) {
      const sums = this.#loads[i] as Map<bigint, bigint>;
      const busy = sumOf([...sums].map(([below, above]) => new Rational(above, below))).over(capacity);
      if (busy.compare(longest) > 0) longest = busy;
    }
    return longest;
  }
}

/** Checks that routes make a tree of all ranks that leads away from the root (or, `up`, towards it). */
function spanningTree(
  net: CheckedNetwork,
  ends: readonly (readonly [number, number])[],
  root: number,
  up: boolean,
  where: string,
): void {
  const parent = new Map(ends.map(([from, to]) => (up ? [from, to] : [to, from])));
  if (ends.length !== net.ranks.length - 1 || parent.size !== ends.length || parent.has(root)) {
    fail(`${where}: expected each rank but the root to have one parent`);
  }
  const rooted = new Set([root]);
  for (const rank of net.ranks) {
    const path: number[] = [];
    let at = rank;
    for (; !rooted.has(at); at = parent.get(at) as number) {
      if (path.length > net.ranks.length || !parent.has(at))
        fail(`${where}: ${net.ids[rank]} does not hang on the root`);
      path.push(at);
    }
    for (const node of path) rooted.add(node);
  }
}

const same = (a: Rational | undefined, b: Rational): boolean => (a ?? Rational.ZERO).equals(b);

function treesTime({ net, collective, root, shares }: Context, value: unknown): Rational {
  const loads = new Loads(net);
  const byRoot = new Map<number, Rational>();
  const directions = {
    all_gather: ["down"],
    broadcast: ["down"],
    reduce_scatter: ["up"],
    reduce: ["up"],
    all_reduce: ["up", "down"],
  };
  const wanted =
    directions[collective as keyof typeof directions] ?? fail(`schedule: ${collective} is not done by trees`);
  for (const [i, entry] of list(value, "schedule.trees").entries()) {
    const where = `schedule.trees[${i}]`;
    const tree = record(entry, where);
    onlyFields(tree, ["root", "weight", ...wanted], where);
    const weight = fraction(tree.weight, `${where}.weight`);
    if (weight.numerator <= 0n) fail(`${where}.weight: expected more than 0`);
    const at = nodeOf(net, tree.root, `${where}.root`);
    if (!net.isRank[at]) fail(`${where}.root: expected a rank`);
    byRoot.set(at, (byRoot.get(at) ?? Rational.ZERO).plus(weight));
    for (const direction of wanted) {
      const ends = list(tree[direction], `${where}.${direction}`).map((route) => loads.add(route, weight, where));
      spanningTree(net, ends, at, direction === "up", `${where}.${direction}`);
    }
  }
  if (collective === "all_reduce") {
    if (!sumOf(byRoot.values()).equals(Rational.ONE)) fail("schedule: the weights of the trees do not sum to 1");
  } else {
    for (const [rank, node] of net.ranks.entries()) {
      const due = root === undefined ? (shares[rank] as Rational) : node === root ? Rational.ONE : Rational.ZERO;
      if (!same(byRoot.get(node), due))
        fail(`schedule: the trees of ${net.ids[node]} do not carry its share of ${due}`);
    }
  }
  return loads.time();
}

function pathsTime({ net, collective, root, shares }: Context, value: unknown): Rational {
  const loads = new Loads(net);
  const carried = new Map<string, Rational>();
  for (const [i, entry] of list(value, "schedule.paths").entries()) {
    const where = `schedule.paths[${i}]`;
    const path = record(entry, where);
    onlyFields(path, ["weight", "route"], where);
    const weight = fraction(path.weight, `${where}.weight`);
    if (weight.numerator <= 0n) fail(`${where}.weight: expected more than 0`);
    const key = loads.add(path.route, weight, `${where}.route`, true).join(" ");
    carried.set(key, (carried.get(key) ?? Rational.ZERO).plus(weight));
  }
  const equal = new Rational(1n, BigInt(net.ranks.length));
  for (const [i, from] of net.ranks.entries()) {
    for (const [j, to] of net.ranks.entries()) {
      if (i === j && carried.has(`${from} ${to}`)) fail("schedule: a path leads from a rank to itself");
      if (i === j) continue;
      const scattered = collective === "scatter" && from === root ? (shares[j] as Rational) : undefined;
      const gathered = collective === "gather" && to === root ? (shares[i] as Rational) : undefined;
      const due = collective === "all_to_all" ? equal : (scattered ?? gathered ?? Rational.ZERO);
      if (!same(carried.get(`${from} ${to}`), due))
        fail(`schedule: ${net.ids[from]} does not send ${due} of the data to ${net.ids[to]}`);
    }
  }
  return loads.time();
}

function contextOf(fields: Record<string, unknown>): Context {
  onlyFields(
    fields,
    ["schemaVersion", "collective", "root", "shares", "network", "secondsPerGB", "witness", "schedule", "seal"],
    "certificate",
  );
  if (fields.schemaVersion !== CERTIFICATE_SCHEMA_VERSION)
    fail(`schemaVersion: expected ${CERTIFICATE_SCHEMA_VERSION}`);
  const collective =
    CERTIFIED_COLLECTIVES.find((name) => name === fields.collective) ??
    fail(`collective: expected one of ${CERTIFIED_COLLECTIVES.join(", ")}`);
  const net = checkNetwork(fields.network);
  if (ROOTED.includes(collective) !== (fields.root !== undefined))
    fail(`root: ${collective} ${ROOTED.includes(collective) ? "needs one" : "has none"}`);
  const root = fields.root === undefined ? undefined : nodeOf(net, fields.root, "root");
  if (root !== undefined && !net.isRank[root]) fail("root: expected a rank");
  if (fields.shares !== undefined && !SHARED.includes(collective)) fail(`shares: ${collective} has none`);
  const equal = new Rational(1n, BigInt(net.ranks.length));
  const shares =
    fields.shares === undefined
      ? net.ranks.map(() => equal)
      : list(fields.shares, "shares").map((share) => fraction(share, "shares"));
  if (
    shares.length !== net.ranks.length ||
    shares.some(({ numerator }) => numerator < 0n) ||
    !sumOf(shares).equals(Rational.ONE)
  ) {
    fail("shares: expected one for each rank, 0 or more, that sum to 1");
  }
  return { net, collective, root, shares };
}

/**
 * Checks a certificate that came from anywhere, such as a file; every field counts.
 * @returns `ok` when the schedule takes exactly `secondsPerGB` and the witness proves that nothing takes less
 * @example
 * const { ok, faults } = checkCertificate(JSON.parse('{"schemaVersion": 1}'));
 * console.log(ok, faults); // false, and why
 */
export function checkCertificate(value: unknown): CertificateCheck {
  try {
    const fields = record(value, "certificate");
    if (fields.seal !== sealOf(fields)) fail("seal: the certificate was changed after it was sealed");
    const context = contextOf(fields);
    const claimed = fraction(fields.secondsPerGB, "secondsPerGB");
    const bound = boundOf(context, fields.witness);
    const schedule = record(fields.schedule, "schedule");
    const trees = schedule.kind === "trees";
    if (!trees && schedule.kind !== "paths") fail('schedule.kind: expected "trees" or "paths"');
    onlyFields(schedule, ["kind", trees ? "trees" : "paths"], "schedule");
    if (!trees && !["scatter", "gather", "all_to_all"].includes(context.collective))
      fail(`schedule: ${context.collective} is not done by paths`);
    const time = trees ? treesTime(context, schedule.trees) : pathsTime(context, schedule.paths);
    const faults: string[] = [];
    if (!time.equals(claimed)) faults.push(`the schedule takes ${time} s/GB, not ${claimed}`);
    if (!bound.equals(claimed)) faults.push(`the witness proves ${bound} s/GB, not ${claimed}`);
    return { ok: faults.length === 0, faults, bound, time };
  } catch (error) {
    const known = error instanceof Fault || (error as { code?: string }).code === "INVALID_FORMAT";
    if (!known) throw error;
    return { ok: false, faults: [(error as Error).message] };
  }
}
