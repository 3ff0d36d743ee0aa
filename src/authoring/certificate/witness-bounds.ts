/** What a witness proves: a lower bound on the time of its collective, by one pass over the edges. */
import type { CertifiedCollective } from "./certificate.ts";
import { distances } from "./distances.ts";
import { fail, fraction, list, nodeOf, nodeSet, onlyFields, record } from "./fields.ts";
import type { CheckedNetwork } from "./network.ts";
import { commonDenominator, Rational } from "./rational.ts";

/** What is certified. */
export interface Context {
  readonly net: CheckedNetwork;
  readonly collective: CertifiedCollective;
  readonly root: number | undefined;
  /** By rank. */
  readonly shares: readonly Rational[];
}

/** What leaves a set of nodes, GB/s; with `entering`, what enters it. */
function crossing(net: CheckedNetwork, inside: ReadonlySet<number>, entering = false): Rational {
  const crossed = net.edges.filter(({ from, to }) =>
    entering ? !inside.has(from) && inside.has(to) : inside.has(from) && !inside.has(to),
  );
  const common = commonDenominator(crossed.map(({ capacity }) => capacity));
  let sum = 0n;
  for (const { capacity } of crossed) sum += capacity.numerator * (common / capacity.denominator);
  return new Rational(sum, common);
}

export const sumOf = (values: Iterable<Rational>): Rational => {
  let sum = Rational.ZERO;
  for (const value of values) sum = sum.plus(value);
  return sum;
};

/** What a cut proves: the data that has to cross it over what can. */
function cutBound({ net, collective, root, shares }: Context, inside: ReadonlySet<number>): Rational {
  const members = net.ranks.map((node) => inside.has(node));
  if (!members.includes(true) || !members.includes(false)) fail("witness: a cut needs a rank on either side");
  const receives = collective === "reduce_scatter" || collective === "reduce" || collective === "gather";
  if (root !== undefined && !inside.has(root)) fail("witness: the root must be inside");
  // The shares of the ranks inside (or, from a root, outside) have to cross; one payload where everybody gets all.
  const crossingData =
    collective === "all_gather" || collective === "reduce_scatter"
      ? sumOf(shares.filter((_, rank) => members[rank]))
      : collective === "scatter" || collective === "gather"
        ? sumOf(shares.filter((_, rank) => !members[rank]))
        : Rational.ONE;
  const capacity = crossing(net, inside, receives);
  if (capacity.numerator === 0n) fail("witness: nothing crosses the cut, so the collective is impossible");
  return crossingData.over(capacity);
}

function partitionBound({ net }: Context, value: unknown): Rational {
  const parts = list(value, "witness.parts");
  if (parts.length < 2) fail("witness.parts: expected at least 2 parts");
  const seen = new Set<number>();
  let [leaving, entering] = [Rational.ZERO, Rational.ZERO];
  for (const [i, part] of parts.entries()) {
    const where = `witness.parts[${i}]`;
    const sides = record(part, where);
    onlyFields(sides, ["out", "in"], where);
    const [out, into] = [nodeSet(net, sides.out, `${where}.out`), nodeSet(net, sides.in, `${where}.in`)];
    const ranks = net.ranks.filter((node) => out.has(node));
    if (ranks.length === 0 || net.ranks.some((node) => out.has(node) !== into.has(node))) {
      fail(`${where}: both cuts must surround the same ranks, at least one`);
    }
    for (const node of ranks) {
      if (seen.has(node)) fail(`${where}: ${net.ids[node]} is in two parts`);
      seen.add(node);
    }
    leaving = leaving.plus(crossing(net, out));
    entering = entering.plus(crossing(net, into, true));
  }
  if (seen.size !== net.ranks.length) fail("witness.parts: every rank must be in a part");
  const least = leaving.compare(entering) < 0 ? leaving : entering;
  if (least.numerator === 0n) fail("witness: nothing crosses the partition, so the collective is impossible");
  return new Rational(2n * BigInt(parts.length - 1)).over(least);
}

function lengthBound({ net }: Context, value: unknown): Rational {
  const edgeOf = new Map(net.edges.map(({ from, to }, i) => [`${from} ${to}`, i]));
  const lengths: Rational[] = net.edges.map(() => Rational.ZERO);
  for (const [i, entry] of list(value, "witness.lengths").entries()) {
    const where = `witness.lengths[${i}]`;
    const fields = record(entry, where);
    onlyFields(fields, ["from", "to", "length"], where);
    const key = `${nodeOf(net, fields.from, where)} ${nodeOf(net, fields.to, where)}`;
    const edge = edgeOf.get(key) ?? fail(`${where}: there is no such edge`);
    const length = fraction(fields.length, where);
    if (length.numerator <= 0n) fail(`${where}: expected a length above 0, once for an edge`);
    edgeOf.delete(key);
    lengths[edge] = length;
  }
  const common = commonDenominator(lengths);
  const integers = lengths.map(({ numerator, denominator }) => numerator * (common / denominator));
  let needed = 0n;
  for (const source of net.ranks) {
    const reached = distances(net, integers, source);
    for (const target of net.ranks) needed += reached[target] ?? fail("witness: a rank cannot be reached");
  }
  const offered = sumOf(net.edges.map(({ capacity }, i) => capacity.times(new Rational(integers[i] as bigint))));
  if (offered.numerator === 0n) fail("witness.lengths: all lengths are 0");
  return new Rational(needed, BigInt(net.ranks.length)).over(offered);
}

export function boundOf(context: Context, value: unknown): Rational {
  const witness = record(value, "witness");
  const { collective, net } = context;
  if (witness.kind === "cut" && collective !== "all_to_all") {
    onlyFields(witness, ["kind", "inside"], "witness");
    return cutBound(context, nodeSet(net, witness.inside, "witness.inside"));
  }
  if (witness.kind === "partition" && collective === "all_reduce") {
    onlyFields(witness, ["kind", "parts"], "witness");
    return partitionBound(context, witness.parts);
  }
  if (witness.kind === "lengths" && collective === "all_to_all") {
    onlyFields(witness, ["kind", "lengths"], "witness");
    return lengthBound(context, witness.lengths);
  }
  return fail(`witness.kind: ${JSON.stringify(witness.kind)} proves nothing about ${collective}`);
}
