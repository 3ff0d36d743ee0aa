/** What can go wrong with a machine while a plan runs: a slow link, a rank that dies at an operation, a lost NIC. */
import { InvalidArgumentError } from "../../core/index.ts";
import type { ExecutionPlan } from "../plan/index.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";

export type Fault =
  /** Every link whose name (`a -> b`) contains `link` has `factor` of its bandwidth. */
  | { readonly kind: "slow-link"; readonly link: string; readonly factor: number }
  /** All strands of the rank stop before the operation with this index. */
  | { readonly kind: "dead-rank"; readonly rank: number; readonly atOp: number }
  /** All links of the node are down. */
  | { readonly kind: "lost-nic"; readonly nic: string };

/** @throws InvalidArgumentError for a rank, operation, link or NIC that is not there, and for a factor above 1 */
export function applyFaults(machine: SimulatedMachine, faults: readonly Fault[], { ranks }: ExecutionPlan) {
  const capacities = machine.capacities();
  const deadAt = new Map<number, number>();
  for (const fault of faults) {
    if (fault.kind === "dead-rank") {
      const rank = ranks[fault.rank];
      if (rank === undefined)
        throw new InvalidArgumentError("fault rank", fault.rank, `a rank from 0 to ${ranks.length - 1}`);
      const last = Math.max(0, ...rank.strands.map((strand) => strand.ops.length - 1));
      if (!Number.isInteger(fault.atOp) || fault.atOp < 0 || fault.atOp > last)
        throw new InvalidArgumentError("fault operation", fault.atOp, `0 to ${last}, the last of rank ${fault.rank}`);
      deadAt.set(fault.rank, Math.min(deadAt.get(fault.rank) ?? Number.POSITIVE_INFINITY, fault.atOp));
      continue;
    }
    if (fault.kind === "slow-link" && !(fault.factor >= 0 && fault.factor <= 1))
      throw new InvalidArgumentError("fault factor", fault.factor, "the share of its bandwidth that is left, 0 to 1");
    const touched = machine.links
      .map((link, index) => ({ link, index }))
      .filter(({ link }) =>
        fault.kind === "slow-link" ? link.name.includes(fault.link) : link.from === fault.nic || link.to === fault.nic,
      );
    if (touched.length === 0) {
      throw new InvalidArgumentError(
        fault.kind === "slow-link" ? "fault link" : "fault nic",
        fault.kind === "slow-link" ? fault.link : fault.nic,
        `a part of one of ${machine.links
          .slice(0, 4)
          .map((link) => `"${link.name}"`)
          .join(", ")}…`,
      );
    }
    for (const { index } of touched)
      capacities[index] = capacities[index]! * (fault.kind === "slow-link" ? fault.factor : 0);
  }
  return { capacities, deadAt };
}

/**
 * Reads a fault from the command line: `slow:gpu0 -> nvswitch0:0.5`, `dead:3@12`, `nic:n0.nic2`.
 * @throws InvalidArgumentError saying what is accepted
 */
export function parseFault(text: string): Fault {
  const accepted = "slow:LINK:FACTOR (0 to 1, what is left of it), dead:RANK@OP or nic:NODE";
  const [kind, ...rest] = text.split(":");
  const value = rest.join(":");
  if (kind === "slow") {
    const at = value.lastIndexOf(":");
    const factor = Number(value.slice(at + 1));
    if (at > 0 && value.slice(at + 1) !== "" && factor >= 0 && factor <= 1)
      return { kind: "slow-link", link: value.slice(0, at), factor };
  }
  if (kind === "dead") {
    const match = /^(\d+)@(\d+)$/.exec(value);
    if (match !== null) return { kind: "dead-rank", rank: Number(match[1]), atOp: Number(match[2]) };
  }
  if (kind === "nic" && value !== "") return { kind: "lost-nic", nic: value };
  throw new InvalidArgumentError("--fault", text, accepted);
}
