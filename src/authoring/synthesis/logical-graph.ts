/**
 * Capacities between nodes in units of trees, and by which physical routes they go: at first each link is one route; a
 * relay that is removed joins the routes that met in it.
 */
import { invariant } from "../../core/index.ts";
import type { Deadline } from "./deadline.ts";

/** Some units of a logical edge, all by the same nodes. */
export interface RoutePiece {
  readonly nodes: readonly number[];
  readonly amount: number;
}

export class LogicalGraph {
  readonly #out: Map<number, RoutePiece[]>[];
  readonly #capacity: Map<number, number>[];
  readonly deadline: Deadline | undefined;

  constructor(numNodes: number, deadline?: Deadline) {
    this.deadline = deadline;
    this.#out = Array.from({ length: numNodes }, () => new Map());
    this.#capacity = Array.from({ length: numNodes }, () => new Map());
  }

  capacity(from: number, to: number): number {
    return this.#capacity[from]?.get(to) ?? 0;
  }

  /** Where edges with capacity lead from a node. */
  targets(from: number): number[] {
    return [...(this.#capacity[from] as Map<number, number>).keys()];
  }

  sources(to: number): number[] {
    return [...this.#capacity.keys()].filter((from) => this.capacity(from, to) > 0);
  }

  *edges(): Generator<readonly [from: number, to: number, capacity: number]> {
    for (const [from, targets] of this.#capacity.entries()) {
      for (const [to, capacity] of targets) yield [from, to, capacity];
    }
  }

  add(from: number, to: number, pieces: readonly RoutePiece[]): void {
    const own = this.#out[from] as Map<number, RoutePiece[]>;
    let sum = this.capacity(from, to);
    const list = own.get(to) ?? [];
    for (const piece of pieces) {
      if (piece.amount === 0) continue;
      sum += piece.amount;
      list.push(piece);
    }
    own.set(to, list);
    if (sum > 0) this.#capacity[from]?.set(to, sum);
  }

  /** Takes units off an edge: the pieces they were. */
  take(from: number, to: number, amount: number): RoutePiece[] {
    const list = this.#out[from]?.get(to) ?? [];
    const rest = this.capacity(from, to) - amount;
    invariant(rest >= 0, "no more is taken than there is");
    const taken: RoutePiece[] = [];
    for (let left = amount; left > 0; ) {
      const piece = list[list.length - 1] as RoutePiece;
      if (piece.amount <= left) {
        list.pop();
        taken.push(piece);
        left -= piece.amount;
      } else {
        list[list.length - 1] = { nodes: piece.nodes, amount: piece.amount - left };
        taken.push({ nodes: piece.nodes, amount: left });
        left = 0;
      }
    }
    if (rest === 0) this.#capacity[from]?.delete(to);
    else this.#capacity[from]?.set(to, rest);
    return taken;
  }

  /** Replaces units of from -> via and via -> to by as many of from -> to; a turn back to where it came from vanishes. */
  splitOff(from: number, via: number, to: number, amount: number): void {
    const [first, second] = [this.take(from, via, amount), this.take(via, to, amount)];
    if (from === to) return;
    this.add(from, to, joined(first, second));
  }
}

function joined(first: RoutePiece[], second: RoutePiece[]): RoutePiece[] {
  const result: RoutePiece[] = [];
  let [i, j, usedFirst, usedSecond] = [0, 0, 0, 0];
  while (i < first.length && j < second.length) {
    const [a, b] = [first[i] as RoutePiece, second[j] as RoutePiece];
    const amount = Math.min(a.amount - usedFirst, b.amount - usedSecond);
    result.push({ nodes: [...a.nodes, ...b.nodes.slice(1)], amount });
    usedFirst += amount;
    usedSecond += amount;
    if (usedFirst === a.amount) [i, usedFirst] = [i + 1, 0];
    if (usedSecond === b.amount) [j, usedSecond] = [j + 1, 0];
  }
  return result;
}
