/**
 * Checks a certificate: that its schedule does the collective and loads no edge for longer than it says, and that its
 * witness proves that no schedule takes less. Integers only, one pass over the edges, and shortest distances for an
 * all-to-all. It solves nothing, and trusts nothing of whoever made the certificate.
 *
 * What has to be trusted is this file, network.ts and exact-numbers.ts, at most 300 lines of code with seal.ts (a test
 * counts them), and the form of the data in schema.ts. The bounds: cuts; 2(k - 1) messages an element among k parties for all-reduce; linear-programming
 * duality (lengths of edges) for all-to-all. docs/synthesis.md derives each.
 */
import { FormatError } from "../../core/index.ts";
import type {
  Certificate,
  CertificateCheck,
  CertifiedCollective,
  LengthWitness,
  NetworkRoute,
  PartitionWitness,
  Schedule,
  Witness,
} from "./certificate.ts";
import { type Fraction, fractionOf, isEqual, isLess, overOneDenominator, sumOf, textOf } from "./exact-numbers.ts";
import { type NumberedNetwork, readNetwork } from "./network.ts";
import { certificateSchema, readAs } from "./schema.ts";
import { sealOf } from "./seal.ts";

/** A collective: the ways of its trees (none: paths), and whose shares have to leave or enter a set of nodes. */
interface Rule {
  readonly ways: readonly ("down" | "up")[];
  readonly cut?: readonly ["leave" | "enter", "inside" | "outside"];
  readonly hasRoot: boolean;
  readonly hasShares: boolean;
}
const RULES: Readonly<Record<CertifiedCollective, Rule>> = {
  all_gather: { ways: ["down"], cut: ["leave", "inside"], hasRoot: false, hasShares: true },
  reduce_scatter: { ways: ["up"], cut: ["enter", "inside"], hasRoot: false, hasShares: true },
  broadcast: { ways: ["down"], cut: ["leave", "inside"], hasRoot: true, hasShares: false },
  reduce: { ways: ["up"], cut: ["enter", "inside"], hasRoot: true, hasShares: false },
  scatter: { ways: [], cut: ["leave", "outside"], hasRoot: true, hasShares: true },
  gather: { ways: [], cut: ["enter", "outside"], hasRoot: true, hasShares: true },
  all_reduce: { ways: ["up", "down"], hasRoot: false, hasShares: false },
  all_to_all: { ways: [], hasRoot: false, hasShares: false },
};

const fail = (where: string, what: string): never => {
  throw new FormatError(where, what);
};
const nodeOf = ({ numberOf }: NumberedNetwork, id: string, where: string): number =>
  numberOf.get(id) ?? fail(where, `${JSON.stringify(id)} is no node of the network`);
const rankOf = (net: NumberedNetwork, id: string, where: string): number =>
  net.isRank[nodeOf(net, id, where)] ? nodeOf(net, id, where) : fail(where, "expected a rank");

/** What is certified. `shares[i]` of `allShares` equal parts of the data belong to rank i: all to a broadcast's root. */
function problemOf({ collective, network, root: id, shares }: Certificate) {
  const net = readNetwork(network);
  const rule = RULES[collective];
  if (rule.hasRoot !== (id !== undefined)) fail("root", `${collective} ${rule.hasRoot ? "needs one" : "has none"}`);
  if (shares !== undefined && !rule.hasShares) fail("shares", `${collective} has none`);
  const root = id === undefined ? undefined : rankOf(net, id, "root");
  const ofRoot = net.ranks.map((node) => (node === root ? "1" : "0"));
  const equal = net.ranks.map(() => `1/${net.ranks.length}`);
  const { values, below } = overOneDenominator(shares ?? (rule.hasRoot && !rule.hasShares ? ofRoot : equal));
  if (values.length !== net.ranks.length || sumOf(values) !== below)
    fail("shares", "expected one for each rank, 0 or more, that sum to 1");
  return { net, collective, rule, root, shares: values, allShares: below };
}
type Problem = ReturnType<typeof problemOf>;

// What the witness proves.

function nodeSet(net: NumberedNetwork, ids: readonly string[], where: string): ReadonlySet<number> {
  const nodes = new Set(ids.map((id) => nodeOf(net, id, where)));
  return nodes.size === ids.length ? nodes : fail(where, "a node stands twice");
}

/** The capacity that leaves a set of nodes, or enters it. */
function crossing({ edges }: NumberedNetwork, inside: ReadonlySet<number>, way: "leave" | "enter"): bigint {
  const [near, far] = way === "leave" ? (["from", "to"] as const) : (["to", "from"] as const);
  const crossed = edges.filter((edge) => inside.has(edge[near]) && !inside.has(edge[far]));
  const capacity = sumOf(crossed.map((edge) => edge.capacity));
  return capacity > 0n ? capacity : fail("witness", "nothing crosses the cut, so the collective is impossible");
}

/** The shares that have to cross a cut, over what can. An all-reduce's data all has to leave. */
function cutBound({ net, rule, root, shares, allShares }: Problem, ids: readonly string[]): Fraction {
  const inside = nodeSet(net, ids, "witness.inside");
  const isInside = net.ranks.map((node) => inside.has(node));
  if (!isInside.includes(true) || !isInside.includes(false)) fail("witness", "a cut needs a rank on either side");
  if (root !== undefined && !inside.has(root)) fail("witness", "the root must be inside");
  const [way, side] = rule.cut ?? ["leave", undefined];
  const counted = shares.filter((_, rank) => side === undefined || isInside[rank] === (side === "inside"));
  return [sumOf(counted) * net.below, crossing(net, inside, way) * allShares];
}

/** k parties need 2(k - 1) messages for each element, and those that a part sends or receives cross its cuts. */
function partitionBound(net: NumberedNetwork, parts: PartitionWitness["parts"]): Fraction {
  const seen = new Set<number>();
  let [leaving, entering] = [0n, 0n];
  for (const [i, part] of parts.entries()) {
    const where = `witness.parts[${i}]`;
    const [out, into] = [nodeSet(net, part.out, where), nodeSet(net, part.in, where)];
    const ranks = net.ranks.filter((node) => out.has(node));
    if (ranks.length === 0 || net.ranks.some((node) => out.has(node) !== into.has(node)))
      fail(where, "both cuts must surround the same ranks, at least one");
    const twice = ranks.find((node) => seen.has(node));
    if (twice !== undefined) fail(where, `${net.ids[twice]} is in two parts`);
    for (const node of ranks) seen.add(node);
    leaving += crossing(net, out, "leave");
    entering += crossing(net, into, "enter");
  }
  if (seen.size !== net.ranks.length) fail("witness.parts", "every rank must be in a part");
  return [2n * BigInt(parts.length - 1) * net.below, leaving < entering ? leaving : entering];
}

type Way = { readonly to: number; readonly length: bigint };

/** By node, how far it is from a rank; lengths may be 0. A node is looked at again whenever it turns out to be nearer. */
function distancesFrom(rank: number, edgesOf: readonly Way[][]): ReadonlyMap<number, bigint> {
  const reached = new Map([[rank, 0n]]);
  const open = new Set([rank]);
  for (const node of open) {
    open.delete(node);
    for (const { to, length } of edgesOf[node] ?? []) {
      const distance = (reached.get(node) as bigint) + length;
      const before = reached.get(to);
      if (before !== undefined && before <= distance) continue;
      reached.set(to, distance);
      open.add(to);
    }
  }
  return reached;
}

/** Traffic times distance is at most capacity times length, whatever the lengths. */
function lengthBound(net: NumberedNetwork, given: LengthWitness["lengths"]): Fraction {
  const { values } = overOneDenominator(given.map(({ length }) => length));
  const lengths: bigint[] = net.edges.map(() => 0n);
  for (const [i, { from, to }] of given.entries()) {
    const where = `witness.lengths[${i}]`;
    const edge = net.edgeFrom(nodeOf(net, from, where), nodeOf(net, to, where)) ?? fail(where, "there is no such edge");
    if (lengths[edge] !== 0n) fail(where, "the edge has a length already");
    lengths[edge] = values[i] as bigint;
  }
  const edgesOf: Way[][] = net.ids.map(() => []);
  for (const [i, { from, to }] of net.edges.entries()) edgesOf[from]?.push({ to, length: lengths[i] as bigint });
  let needed = 0n;
  for (const source of net.ranks) {
    const reached = distancesFrom(source, edgesOf);
    for (const target of net.ranks) needed += reached.get(target) ?? fail("witness", "a rank cannot be reached");
  }
  const offered = sumOf(net.edges.map(({ capacity }, i) => capacity * (lengths[i] as bigint)));
  if (offered === 0n) fail("witness.lengths", "all lengths are 0");
  return [needed * net.below, offered * BigInt(net.ranks.length)];
}

function boundOf(problem: Problem, witness: Witness): Fraction {
  const { net, collective } = problem;
  if (witness.kind === "cut" && collective !== "all_to_all") return cutBound(problem, witness.inside);
  if (witness.kind === "partition" && collective === "all_reduce") return partitionBound(net, witness.parts);
  if (witness.kind === "lengths" && collective === "all_to_all") return lengthBound(net, witness.lengths);
  return fail("witness.kind", `${witness.kind} proves nothing about ${collective}`);
}

// What the schedule takes.

type Ends = readonly [from: number, to: number];

/** Adds a weight to the edges of a route between two ranks, and gives its ends. Only paths may lead over other ranks. */
function load({ net, rule }: Problem, loads: bigint[], route: NetworkRoute, weight: bigint, where: string): Ends {
  const nodes = route.map((id) => nodeOf(net, id, where));
  for (const [i, node] of nodes.entries()) {
    const isEnd = i === 0 || i === nodes.length - 1;
    if (isEnd ? !net.isRank[node] : net.isRank[node] && rule.ways.length > 0)
      fail(where, "a route leads from rank to rank over relays");
    if (i === 0) continue;
    const edge = net.edgeFrom(nodes[i - 1] as number, node) ?? fail(where, `there is no edge to ${net.ids[node]}`);
    loads[edge] = (loads[edge] as bigint) + weight;
  }
  return [nodes[0] as number, nodes[nodes.length - 1] as number];
}

/** Checks that pairs of parent and child make a tree of all ranks below the root. */
function requireTree(net: NumberedNetwork, pairs: readonly Ends[], root: number, where: string): void {
  const parentOf = new Map(pairs.map(([parent, child]) => [child, parent]));
  if (pairs.length !== net.ranks.length - 1 || parentOf.size !== pairs.length || parentOf.has(root))
    fail(where, "expected each rank but the root to have one parent");
  const below = new Set([root]);
  for (const rank of net.ranks) {
    const path = new Set<number>();
    for (let at = rank; !below.has(at); at = parentOf.get(at) as number) {
      if (path.has(at)) fail(where, `${net.ids[rank]} does not hang on the root`);
      path.add(at);
    }
    for (const node of path) below.add(node);
  }
}

/** How long the busiest edge is busy. */
function timeOf(problem: Problem, schedule: Schedule): Fraction {
  const { net, collective, rule } = problem;
  const entries = schedule.kind === "trees" ? schedule.trees : schedule.paths;
  const needed = rule.ways.length > 0 ? "trees" : "paths";
  if (schedule.kind !== needed) fail("schedule", `expected ${needed} for ${collective}`);
  const { values, below } = overOneDenominator(entries.map(({ weight }) => weight));
  const loads: bigint[] = net.edges.map(() => 0n);
  const carried = new Map<number, bigint>();
  for (const [i, entry] of entries.entries()) {
    const where = `schedule.${schedule.kind}[${i}]`;
    const weight = values[i] as bigint;
    const loaded = (route: NetworkRoute) => load(problem, loads, route, weight, where);
    const root = "root" in entry ? rankOf(net, entry.root, where) : undefined;
    const [from, to] = "route" in entry ? loaded(entry.route) : [root as number, root as number];
    for (const way of ["up", "down"] as const) {
      const pairs = "root" in entry ? entry[way]?.map(loaded) : undefined;
      if ((pairs !== undefined) !== rule.ways.includes(way)) fail(`${where}.${way}`, `wrong for ${collective}`);
      if (pairs !== undefined) requireTree(net, way === "up" ? pairs.map(([a, b]) => [b, a]) : pairs, from, where);
    }
    carried.set(from * net.ids.length + to, (carried.get(from * net.ids.length + to) ?? 0n) + weight);
  }
  requireShares(problem, carried, below);
  const busy = net.edges.map(({ capacity }, i): Fraction => [(loads[i] as bigint) * net.below, capacity * below]);
  return busy.reduce((longest, one) => (isLess(longest, one) ? one : longest), [0n, 1n]);
}

/** Checks that what is carried, by source and target (of a tree: its root twice), is what has to be, no less and no more. */
function requireShares(problem: Problem, carried: ReadonlyMap<number, bigint>, below: bigint): void {
  const { net, collective, rule, root, shares, allShares } = problem;
  if (collective === "all_reduce") {
    if (sumOf([...carried.values()]) !== below) fail("schedule", "the weights of the trees do not sum to 1");
    return;
  }
  for (const [i, from] of net.ranks.entries()) {
    for (const [j, to] of net.ranks.entries()) {
      const isPath = i !== j && (root === undefined || root === (collective === "gather" ? to : from));
      const isMeant = rule.ways.length > 0 ? i === j : isPath;
      const due: Fraction = [isMeant ? (shares[collective === "gather" ? i : j] as bigint) : 0n, allShares];
      if (isEqual([carried.get(from * net.ids.length + to) ?? 0n, below], due)) continue;
      fail("schedule", `from ${net.ids[from]} to ${net.ids[to]} it does not carry its share of ${textOf(due)}`);
    }
  }
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
    const certificate = readAs(certificateSchema, value, "certificate") as Certificate;
    if (certificate.seal !== sealOf(certificate)) fail("seal", "the certificate was changed after it was sealed");
    const problem = problemOf(certificate);
    const claimed = fractionOf(certificate.secondsPerGB);
    const [bound, time] = [boundOf(problem, certificate.witness), timeOf(problem, certificate.schedule)];
    const faults: string[] = [];
    if (!isEqual(time, claimed)) faults.push(`the schedule takes ${textOf(time)} s/GB, not ${textOf(claimed)}`);
    if (!isEqual(bound, claimed)) faults.push(`the witness proves ${textOf(bound)} s/GB, not ${textOf(claimed)}`);
    return { ok: faults.length === 0, faults, bound: textOf(bound), time: textOf(time) };
  } catch (error) {
    if (error instanceof FormatError) return { ok: false, faults: [error.message] };
    throw error;
  }
}
