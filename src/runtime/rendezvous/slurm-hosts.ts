/**
 * Where the processes of a Slurm step meet when nobody says it: on the first host of the step's list, at a port made of the
 * job's number. Lists of hosts are as `scontrol show hostnames` reads them: `node[01-04,07],gpu-3,rack[1-2]n[1-3]`.
 * It asks no program of Slurm, which containers often lack. It refuses ranges with steps and numbers that are not decimal.
 */
import { InvalidArgumentError } from "../../core/index.ts";

/** As many hosts as Slurm itself takes in one range. */
const MAX_HOSTS = 65_536;
/** What Linux takes as one variable. */
const MAX_LIST_CHARS = 128 * 1024;
/** Of a DNS name. */
const MAX_NAME_CHARS = 253;
/** Slurm has five dimensions at most. */
const MAX_BRACKETS = 8;

/** Above the ports that Linux gives to outgoing connections; JAX takes its port there too. */
const FIRST_PORT = 61_440;
const NUM_PORTS = 4096;
/** Steps of one job that run side by side on one host are kept apart by it; a prime, so that they do not meet other jobs early. */
const PORTS_BETWEEN_STEPS = 997;
const DEFAULT_PORT = 29_517;

const LISTS = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"] as const;

type Environment = Readonly<Record<string, string | undefined>>;

/** A place among the processes that were started. `size` is `undefined` where it may change. */
interface Place {
  readonly rank: number;
  readonly size: number | undefined;
}

interface Range {
  readonly first: number;
  readonly count: number;
  /** Zero-padded to so many digits. */
  readonly width: number;
}

/**
 * Expands a list of hosts, in its order; of several brackets in one name the last runs fastest.
 * @param what is named in errors
 * @throws InvalidArgumentError for a list that is malformed, or has more than 65536 hosts
 */
export function expandHostList(text: string, what = "the list of hosts"): readonly string[] {
  const refuse = (at: number, why: string): never => {
    const list = text.length > 200 ? `${text.slice(0, 200)}...` : text;
    throw new InvalidArgumentError(what, list, `hosts such as node[01-04,07],gpu-3; at character ${at + 1}, ${why}`);
  };
  if (text.length > MAX_LIST_CHARS) refuse(MAX_LIST_CHARS, `the list is longer than ${MAX_LIST_CHARS} characters`);
  const hosts: string[] = [];
  let at = 0;
  for (;;) {
    const start = at;
    let numBrackets = 0;
    let names = [""];
    while (at < text.length && text[at] !== ",") {
      if (text[at] !== "[") {
        const [literal = ""] = /^[\w.-]+/.exec(text.slice(at, at + MAX_NAME_CHARS + 1)) ?? [];
        if (literal === "") refuse(at, `${JSON.stringify(text[at])} is not part of a host's name`);
        if (at === start && /^[.-]/.test(literal)) refuse(at, "a host's name begins with a letter or a digit");
        names = names.map((name) => name + literal);
        at += literal.length;
      } else {
        const end = text.indexOf("]", at);
        if (end < 0) refuse(at, "a bracket is not closed");
        if (++numBrackets > MAX_BRACKETS) refuse(at, `a name has more than ${MAX_BRACKETS} brackets`);
        const ranges = readRanges(text.slice(at + 1, end), at + 1, refuse);
        const count = ranges.reduce((sum, range) => sum + range.count, 0);
        if (hosts.length + names.length * count > MAX_HOSTS) refuse(at, `there are more than ${MAX_HOSTS} hosts`);
        const numbers = ranges.flatMap(({ first, count, width }) =>
          Array.from({ length: count }, (_, index) => String(first + index).padStart(width, "0")),
        );
        names = names.flatMap((name) => numbers.map((number) => name + number));
        at = end + 1;
      }
      if ((names[0]?.length ?? 0) > MAX_NAME_CHARS) refuse(start, `a name has more than ${MAX_NAME_CHARS} characters`);
    }
    if (at === start) refuse(at, "a host's name is missing");
    if (hosts.length + names.length > MAX_HOSTS) refuse(start, `there are more than ${MAX_HOSTS} hosts`);
    for (const name of names) hosts.push(name);
    if (at >= text.length) return hosts;
    at++;
  }
}

/** What stands between brackets. @param from where it begins in the list */
function readRanges(text: string, from: number, refuse: (at: number, why: string) => never): readonly Range[] {
  let at = from;
  return text.split(",").map((part) => {
    const here = at;
    at += part.length + 1;
    const [, low, high = low] = /^(\d{1,12})(?:-(\d{1,12}))?$/.exec(part) ?? [];
    if (low === undefined || high === undefined)
      return refuse(here, `expected a number or a range, such as 07 or 01-04, of 12 digits at most`);
    const count = Number(high) - Number(low) + 1;
    if (count < 1) refuse(here, `the range ${part} ends before it begins`);
    return { first: Number(low), count, width: low.length };
  });
}

/**
 * Whether Slurm started the process of this place: mpirun's daemons, too, are tasks of a step, and theirs is another place. The parts
 * of a heterogeneous job have a list each.
 */
function isSlurmTask(env: Environment, { rank, size }: Place): boolean {
  const tasks = env["SLURM_STEP_NUM_TASKS"];
  const isAlone = Number(env["SLURM_HET_SIZE"] ?? 1) === 1;
  return (
    isAlone && env["SLURM_PROCID"] === String(rank) && Number(tasks) >= 1 && Number(size ?? tasks) === Number(tasks)
  );
}

/**
 * The host of Slurm's first task, and the variable that says so; `undefined` where Slurm did not start this process.
 * @throws InvalidArgumentError for a list that cannot be read
 */
export function slurmFirstHost(
  env: Environment,
  place: Place,
): { readonly host: string; readonly from: string } | undefined {
  const from = LISTS.find((name) => env[name]);
  if (from === undefined || !isSlurmTask(env, place)) return undefined;
  const [host = ""] = expandHostList(env[from] ?? "", from);
  return { host, from };
}

/**
 * The port where the tasks of a Slurm step meet, the same in each of them; `undefined` where Slurm did not start this process.
 * @throws InvalidArgumentError for a job's number that is none
 */
export function slurmPort(
  env: Environment,
  place: Place,
): { readonly port: number; readonly from: string } | undefined {
  if (!isSlurmTask(env, place)) return undefined;
  const read = (name: string): number | undefined => {
    const text = env[name];
    if (!text) return undefined;
    if (!/^\d{1,10}$/.test(text)) throw new InvalidArgumentError(name, text, "a whole number");
    return Number(text);
  };
  const job = read("SLURM_JOB_ID");
  if (job === undefined) return { port: DEFAULT_PORT, from: "the default port" };
  const step = read("SLURM_STEP_ID");
  return {
    port: FIRST_PORT + ((job + PORTS_BETWEEN_STEPS * (step ?? 0)) % NUM_PORTS),
    from: `a port made of SLURM_JOB_ID${step === undefined ? "" : " and SLURM_STEP_ID"}`,
  };
}
