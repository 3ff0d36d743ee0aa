/**
 * What serves the collectives of a group of threads: kernels that move shares of everybody's buffers, or a plan that a
 * table of choices or the call itself names (executor/chosen-plan.ts).
 */
import { COLLECTIVE_NAMES } from "../../../collectives/index.ts";
import type { CpuTopology } from "../../../machine/cost/index.ts";
import type { CommStats } from "../../comm/index.ts";
import {
  type ChoiceDocument,
  Choices,
  choiceNews,
  type KernelNames,
  registerStoredPlans,
  SHIPPED_CHOICES,
} from "../../executor/internal.ts";

/** The collectives by hand: see move.ts. */
const KERNELS = Object.fromEntries(
  COLLECTIVE_NAMES.map((op) => [op, [op === "all_reduce" ? "two-shot-kernel" : "direct-kernel"]]),
) as unknown as KernelNames;

interface GroupFacts {
  readonly backend: string;
  readonly name: string;
  readonly size: number;
  readonly me: number;
  readonly topology: CpuTopology;
  /** This machine's own document, as the launcher read it. */
  readonly machine: ChoiceDocument | undefined;
}

/** The choices of a group. One of its ranks tells of them where `CHORALE_LOG` asks for it. */
export function choicesOf({ backend, name, size, me, topology, machine }: GroupFacts): Choices {
  const documents = machine === undefined ? [SHIPPED_CHOICES] : [machine, SHIPPED_CHOICES];
  if (machine !== undefined) registerStoredPlans(machine);
  // What serves threads best serves processes with the same memory: one set of tables.
  const place = { backend, tablesOf: "threads", group: name, numRanks: size, topology, kernels: KERNELS };
  return new Choices(place, documents, choiceNews(me));
}

/** How many calls each choice served. What no plan and no `algorithm:` was asked for, the first kernel served. */
export function countChoices(choices: Choices, operations: CommStats["operations"]): Record<string, number> {
  const counts = choices.counts();
  const others: Record<string, number> = {};
  for (const [key, calls] of Object.entries(counts)) {
    const op = key.slice(0, key.indexOf(" "));
    others[op] = (others[op] ?? 0) + calls;
  }
  for (const op of COLLECTIVE_NAMES) {
    const rest = (operations[op]?.calls ?? 0) - (others[op] ?? 0);
    const key = `${op} ${KERNELS[op][0]}`;
    if (rest > 0) counts[key] = (counts[key] ?? 0) + rest;
  }
  return counts;
}
