/**
 * Where strands compete for a semaphore or a signal, each order of theirs is a run of its own, and in each everything may be
 * ordered: nothing races, and yet the runs may end differently. Where the collective says what outputs hold, each run is compared
 * with that; where it does not, the runs have to end alike. That goes for a send and receive that leaves open who sends to whom,
 * too: each run by itself may be one, each with other senders.
 *
 * Why unknowns are compared like inputs. What lies where nobody wrote does not depend on timing, but what is made of it does: order
 * by order, the same sums may hold it once or twice, or the unknown of one place or of another. Runs end alike for certain where each
 * place is combined from the same inputs and the same unknowns, and only then are they called alike (`Values.alike`); an unknown
 * is named by the place that was read, or by the packet that was read as plain data, never by who read it.
 */

import type { ExecutionPlan } from "../plan/index.ts";
import { placeOfSite } from "./access-log.ts";
import type { Geometry } from "./cell-geometry.ts";
import { placeOfCell } from "./cell-geometry.ts";
import type { Exploration } from "./explore-plan.ts";
import { type Findings, opRef } from "./findings.ts";
import { isOpenSendRecv } from "./judge-outputs.ts";
import type { Values } from "./symbolic-values.ts";

const saysNothing = (plan: ExecutionPlan) => plan.collective.operation === "test" || isOpenSendRecv(plan);

/** Compares what runs leave in inputs and outputs with what the first of them left there. */
export class OrderComparison {
  readonly #geometry: Geometry;
  readonly #values: Values;
  #first: readonly { readonly cell: number; readonly value: number; readonly tag: number }[] | undefined;
  constructor(geometry: Geometry, values: Values) {
    this.#geometry = geometry;
    this.#values = values;
  }

  /** Adds a finding where a run that ended leaves something else than the first. */
  add(run: Exploration, findings: Findings): void {
    const { plan } = this.#geometry;
    if (!saysNothing(plan)) return;
    const end = this.#cells().map((cell) => ({ cell, ...run.memory.final(cell, run.finished) }));
    this.#first ??= end;
    const other = end.find(({ value, tag }, i) => !this.#same(value, tag, this.#first![i]!));
    if (other === undefined) return;
    const { rank, buffer, index } = placeOfCell(this.#geometry, other.cell);
    const at = other.writer === undefined ? undefined : placeOfSite(this.#geometry, other.writer);
    const ref = at === undefined ? { rank, strand: -1, op: -1 } : opRef(plan, at.rank, at.strand, at.op, at.body);
    findings.add({
      ...ref,
      code: "race",
      severity: "error",
      chunk: { rank, buffer, index },
      message: `what ${buffer}[${index}] of rank ${rank} holds depends on the order in which strands get a semaphore or a signal that they compete for`,
      hint: "give each waiting strand a semaphore or channel of its own, or let the order not matter",
    });
  }

  #same(value: number, tag: number, first: { readonly value: number; readonly tag: number }): boolean {
    return tag === first.tag && this.#values.alike(value, first.value);
  }

  #cells(): number[] {
    const { plan, launches, cellsPerChunk } = this.#geometry;
    const cells: number[] = [];
    for (let launch = 0; launch < launches; launch++)
      for (const rank of plan.ranks)
        for (const buffer of isOpenSendRecv(plan) ? (["output"] as const) : (["input", "output"] as const)) {
          const begin = this.#geometry.base(launch, rank.rank, buffer);
          for (let i = 0; i < rank[buffer].chunks * cellsPerChunk; i++) cells.push(begin + i);
        }
    return cells;
  }
}
