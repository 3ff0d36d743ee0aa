import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { CERTIFIED_COLLECTIVES, checkCertificate, checkNetwork, type Network, Rational } from "../certificate/index.ts";
import { certify } from "./certify.ts";
import { scaleNetwork } from "./scaled-graph.ts";
import { synthesize } from "./synthesize.ts";

const seed = Number(process.env.CHORALE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const numRuns = Number(process.env.CHORALE_SYNTHESIS_RUNS ?? 40);

interface Shape {
  readonly numRanks: number;
  readonly numRelays: number;
  readonly links: readonly { readonly a: number; readonly b: number; readonly there: number; readonly back: number }[];
}

/** A connected graph: a tree over all nodes first, then chance. One-way where `symmetric` is false. */
const shapes = (symmetric: boolean, most: number) =>
  fc
    .record({ numRanks: fc.integer({ min: 3, max: most }), numRelays: fc.integer({ min: 0, max: symmetric ? 4 : 0 }) })
    .chain(({ numRanks, numRelays }) => {
      const numNodes = numRanks + numRelays;
      const capacity = fc.integer({ min: 1, max: 12 });
      return fc
        .record({
          parents: fc.tuple(...Array.from({ length: numNodes - 1 }, (_, i) => fc.integer({ min: 0, max: i }))),
          widths: fc.array(fc.tuple(capacity, capacity), { minLength: numNodes - 1, maxLength: numNodes - 1 }),
          extra: fc.array(
            fc.tuple(fc.nat(numNodes - 1), fc.nat(numNodes - 1), capacity, fc.integer({ min: 0, max: 12 })),
            { maxLength: 2 * numNodes },
          ),
        })
        .map(
          ({ parents, widths, extra }): Shape => ({
            numRanks,
            numRelays,
            links: [
              ...parents.map((a, i) => ({
                a,
                b: i + 1,
                there: widths[i]?.[0] as number,
                back: widths[i]?.[1] as number,
              })),
              ...extra.map(([a, b, there, back]) => ({ a, b, there, back })),
            ].map((link) => (symmetric ? { ...link, back: link.there } : link)),
          }),
        );
    });

function networkOf({ numRanks, numRelays, links }: Shape): Network {
  const sums = new Map<string, { from: string; to: string; sum: number }>();
  const add = (from: number, to: number, capacity: number): void => {
    if (from === to || capacity === 0) return;
    const key = `${from} ${to}`;
    sums.set(key, { from: `n${from}`, to: `n${to}`, sum: (sums.get(key)?.sum ?? 0) + capacity });
  };
  for (const { a, b, there, back } of links) {
    add(a, b, there);
    add(b, a, back);
  }
  return {
    nodes: Array.from({ length: numRanks + numRelays }, (_, i) => ({
      id: `n${i}`,
      kind: i < numRanks ? "rank" : "relay",
    })),
    edges: [...sums.values()].map(({ from, to, sum }) => ({ from, to, capacity: String(sum) })),
  };
}

/** The largest share(S) / leaving(S) over every set of nodes that `counts`, tried one by one. */
function worstCut(network: Network, share: (inside: ReadonlySet<number>) => number): Rational {
  const graph = scaleNetwork(checkNetwork(network));
  let worst = Rational.ZERO;
  for (let bits = 1; bits < 2 ** graph.numNodes - 1; bits++) {
    const inside = new Set([...graph.ids.keys()].filter((node) => (bits >> node) & 1));
    const data = share(inside);
    if (data === 0) continue;
    const capacity = graph.edges.reduce(
      (sum, { from, to, capacity: c }) => sum + (inside.has(from) && !inside.has(to) ? c : 0),
      0,
    );
    const ratio = new Rational(BigInt(data), BigInt(capacity)).over(graph.unit);
    if (ratio.compare(worst) > 0) worst = ratio;
  }
  return worst;
}

describe(`random networks (seed ${seed})`, () => {
  it.each([true, false])(
    "have the bound of their worst cut, and schedules that reach it (symmetric: %s)",
    async (symmetric) => {
      await fc.assert(
        fc.asyncProperty(shapes(symmetric, 6), async (shape) => {
          const network = networkOf(shape);
          const { numRanks } = shape;
          const ranksIn = (inside: ReadonlySet<number>) => [...inside].filter((node) => node < numRanks).length;
          const some = (inside: ReadonlySet<number>) => ranksIn(inside) > 0 && ranksIn(inside) < numRanks;
          const expected = {
            all_gather: worstCut(network, (inside) => (some(inside) ? ranksIn(inside) : 0)).over(
              new Rational(BigInt(numRanks)),
            ),
            broadcast: worstCut(network, (inside) => (some(inside) && inside.has(0) ? 1 : 0)),
            scatter: worstCut(network, (inside) => (inside.has(0) ? numRanks - ranksIn(inside) : 0)).over(
              new Rational(BigInt(numRanks)),
            ),
          };
          for (const collective of CERTIFIED_COLLECTIVES) {
            const result = await synthesize(network, collective);
            const cut = expected[collective as keyof typeof expected];
            if (cut !== undefined) expect(`${collective} ${result.bound}`).toBe(`${collective} ${cut}`);
            expect(result.time.compare(result.bound)).toBeGreaterThanOrEqual(0);
            // All-reduce over one-way links may stay above its bound; everything else is exact.
            if (symmetric || collective !== "all_reduce")
              expect(`${collective} ${result.time}`).toBe(`${collective} ${result.bound}`);
            if (result.isOptimal) expect(checkCertificate(certify(result)).faults).toEqual([]);
          }
        }),
        { seed, numRuns },
      );
    },
    600_000,
  );
});
