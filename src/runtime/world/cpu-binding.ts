/** Which CPUs each rank of a host runs on: an equal share of those that this process may use, or all of one NUMA node. */
import { readdirSync, readFileSync } from "node:fs";
import { InvalidArgumentError, UnavailableError } from "../../core/index.ts";
import { oneOf } from "../../core/internal.ts";

export const BINDINGS = ["none", "cores", "numa"] as const;
/** `cores`: an equal share of the CPUs, neighbours together. `numa`: a NUMA node's CPUs, ranks spread over the nodes in order. */
export type Binding = (typeof BINDINGS)[number];

/** Reads a binding's name. @throws InvalidArgumentError naming them */
export function parseBinding(text: string, argument = "bind"): Binding {
  return oneOf(text, argument, BINDINGS);
}

/** Reads a list of CPUs as the kernel writes it: `0-3,8`. @throws InvalidArgumentError */
export function parseCpus(text: string): readonly number[] {
  return text
    .trim()
    .split(",")
    .filter((part) => part !== "")
    .flatMap((part) => {
      const [, first, last = first] = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(part) ?? [];
      if (first === undefined) throw new InvalidArgumentError("CPUs", text, "a list such as 0-3,8");
      return Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) => Number(first) + i);
    });
}

/**
 * Shares CPUs out among the ranks of a host.
 * @param nodes the CPUs of each NUMA node, in order; those that may not be used are left out
 * @returns the CPUs of each rank; with more ranks than CPUs several have one
 */
export function shareCpus(
  binding: Exclude<Binding, "none">,
  ranks: number,
  allowed: readonly number[],
  nodes: readonly (readonly number[])[],
): readonly (readonly number[])[] {
  const usable = nodes.map((node) => node.filter((cpu) => allowed.includes(cpu))).filter(({ length }) => length > 0);
  const found = usable.length === 0 ? [allowed] : usable;
  return Array.from({ length: ranks }, (_, rank) => {
    if (binding === "numa") return found[Math.floor((rank * found.length) / ranks)] ?? allowed;
    const all = found.flat();
    if (ranks >= all.length) return [all[rank % all.length] ?? 0];
    return all.slice(Math.floor((rank * all.length) / ranks), Math.floor(((rank + 1) * all.length) / ranks));
  });
}

/** The shares of one host's ranks. A rank that is started again gets that of the one it replaces. */
export class CpuShares {
  readonly #shares: readonly (readonly number[])[];
  readonly #taken = new Set<number>();

  /** @throws UnavailableError where the system has no such binding */
  constructor(binding: Exclude<Binding, "none">, ranks: number) {
    this.#shares = shareCpus(binding, ranks, ...cpusHere());
  }

  /** The first share that nobody has. `free` gives it back. */
  take(): { readonly cpus: readonly number[]; readonly free: () => void } {
    const index = Math.max(
      0,
      this.#shares.findIndex((_, i) => !this.#taken.has(i)),
    );
    this.#taken.add(index);
    return { cpus: this.#shares[index] ?? [], free: () => void this.#taken.delete(index) };
  }
}

function cpusHere(): [allowed: readonly number[], nodes: readonly (readonly number[])[]] {
  try {
    const status = readFileSync("/proc/self/status", "utf8");
    const allowed = parseCpus(/^Cpus_allowed_list:\s*(\S+)/m.exec(status)?.[1] ?? "");
    return [allowed, nodesHere()];
  } catch (cause) {
    throw new UnavailableError("binding ranks to CPUs", "this system does not say which it has", "Linux does.", {
      cause,
    });
  }
}

function nodesHere(): readonly (readonly number[])[] {
  const folder = "/sys/devices/system/node";
  try {
    const names = readdirSync(folder).filter((name) => /^node\d+$/.test(name));
    const sorted = names.sort((a, b) => Number(a.slice(4)) - Number(b.slice(4)));
    return sorted.map((name) => parseCpus(readFileSync(`${folder}/${name}/cpulist`, "utf8")));
  } catch {
    // A kernel without NUMA: all CPUs are one node.
    return [];
  }
}
