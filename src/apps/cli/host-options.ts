/** Options of commands whose world may have several hosts: how many, which this one is, and where they meet. */
import { type Command, InvalidArgumentError as InvalidOption } from "commander";
import { InvalidArgumentError } from "../../core/index.ts";
import type { HostRange, NodesOptions } from "../../runtime/world/index.ts";
import { type HostFlags, hostsOf } from "./launch-hosts.ts";
import { seconds } from "./option-readers.ts";

/** Adds them. @param isElastic the number of hosts may be a range */
export function addHostOptions(command: Command, isElastic = false): Command {
  const range = isElastic ? ", MIN:MAX of them," : "";
  return command
    .option("--nnodes <n>", `number of hosts${range} or env: what Slurm, Open MPI, MPICH or Kubeflow says`, parseNodes)
    .option("--node-rank <r>", "number of this host, from 0, or env (of a Kubernetes indexed Job too)", parseNodeRank)
    .option(
      "--rdzv <host:port>",
      "where the launcher of host 0 listens (CHORALE_RDZV, MASTER_ADDR:MASTER_PORT; under srun derived)",
    )
    .option("--join-timeout <seconds>", "how long the hosts wait for each other at the start (60)", seconds)
    .option("--host-timeout <seconds>", "give up a host that is silent for longer (10)", seconds);
}

/** What `--help` says of a command that measures on several hosts. */
export const measuredHostsHelp = (command: string, backends: string): string => `
Several hosts (--backend ${backends}): the same command on each, with its own --node-rank and the same -n, the ranks of
one host; the hosts know each other by CHORALE_SECRET, as with chorale launch. Host 0 decides what is measured, and prints it:
  host 0: ${command} -n 4 --nnodes 2 --node-rank 0 --rdzv 10.0.0.1:29517
  host 1: ${command} -n 4 --nnodes 2 --node-rank 1 --rdzv 10.0.0.1:29517`;

export interface MeasuredHosts {
  /** Ranks of all hosts. */
  readonly ranks: number;
  readonly nodes: NodesOptions;
  readonly isFirst: boolean;
}

/** Flags of a command that measures. */
export interface MeasuredHostFlags extends Omit<HostFlags, "n"> {
  readonly ranks?: number;
}

/** The hosts that something is measured on; `undefined` where no flag speaks of several. @throws InvalidArgumentError */
export function measuredHosts({ ranks, ...flags }: MeasuredHostFlags): MeasuredHosts | undefined {
  // Any number will do where no flag says that there are several.
  const isAlone = flags.nnodes === undefined && flags.nodeRank === undefined;
  const { nodes } = hostsOf({ ...flags, ...(isAlone ? { n: 1 } : ranks === undefined ? {} : { n: ranks }) });
  if (nodes === undefined) return undefined;
  const { count } = nodes;
  if (typeof count !== "number") {
    const given = `${count.min}:${count.max}`;
    throw new InvalidArgumentError("--nnodes", given, "one number of hosts: all are measured together");
  }
  return { ranks: count * (ranks ?? 1), nodes, isFirst: nodes.rank === 0 };
}

function parseNodes(text: string): number | HostRange | "env" {
  if (text === "env") return text;
  const [, min, max] = /^(\d{1,9})(?::(\d{1,9}))?$/.exec(text) ?? [];
  if (min === undefined || Number(min) < 1) throw new InvalidOption("expected a number of hosts, MIN:MAX, or env");
  if (max === undefined) return Number(min);
  if (Number(max) < Number(min)) throw new InvalidOption("expected MIN:MAX, with MIN no larger than MAX");
  return { min: Number(min), max: Number(max) };
}

function parseNodeRank(text: string): number | "env" {
  return text === "env" ? text : parseCount(text);
}

export function parseCount(text: string): number {
  if (!/^\d{1,6}$/.test(text)) throw new InvalidOption("expected an integer, 0 or more");
  return Number(text);
}

export function parseDelay(text: string): number {
  return text.trim() !== "" && Number(text) === 0 ? 0 : seconds(text);
}
