/** `chorale plan --users` and `--slo`: how many users a machine serves, what bounds it, and several machines compared. */
import { InvalidArgumentError, printableLine } from "../../core/index.ts";
import {
  answerLoad,
  axesText,
  type ComparedLoad,
  compareLoads,
  type Load,
  type LoadAnswer,
  type LoadLimit,
  loadChanges,
  type NearestChange,
  type PlanRequest,
  type PriceCatalogue,
  type ServiceLevel,
  withPrice,
} from "../../planner/index.ts";
import { EXIT } from "./exit-codes.ts";
import { print, printJson } from "./output.ts";
import { readServiceLevel, short, tableOf } from "./plan-decisions.ts";

export interface LoadFlags {
  readonly users?: number;
  readonly slo?: string;
  readonly json?: boolean;
}

/** Whether `--users` or `--slo` was asked. */
export const asksForLoad = (flags: LoadFlags): boolean => flags.users !== undefined || flags.slo !== undefined;

const levelOf = ({ slo }: LoadFlags): ServiceLevel => (slo === undefined ? {} : readServiceLevel(slo));
const NAMES = { ttft: "first token", tpot: "time a token" } as const;

const people = (num: number) => (num === 1 ? "1 user" : `${num} users`);

/** What so many users break, with the numbers. */
function limitText({ kind, users, seconds = 0, allowedSeconds = 0, reason = "" }: LoadLimit): string {
  if (kind === "unsupported") return reason;
  if (kind === "memory") return `memory: ${people(users)} ${users === 1 ? "does" : "do"} not fit: ${reason}`;
  // As exact as it takes to tell the two apart.
  const digits = [3, 4, 5, 6].find((n) => seconds.toPrecision(n) !== allowedSeconds.toPrecision(n)) ?? 7;
  const exact = (value: number) => String(Number(value.toPrecision(digits)));
  return `${NAMES[kind]}: ${people(users)} ${users === 1 ? "takes" : "take"} ${exact(seconds)} s, ${exact(allowedSeconds)} s allowed (${kind})`;
}

/** With the prefill of others between tokens, as in the time a token. */
const together = ({ users, tpotSeconds }: Load) => (tpotSeconds > 0 ? users / tpotSeconds : 0);

function renderLoad(
  { load, largest, limit, limitOfOne }: LoadAnswer,
  { users, slo }: LoadFlags,
  changes: readonly NearestChange[],
): string {
  if (load === undefined) {
    return [
      `${users === undefined ? "not even one user is" : `${people(users)} at once ${users === 1 ? "is" : "are"} not`} served${slo === undefined ? "" : ` within ${slo}`}`,
      ...(limit === undefined ? [] : [`limited by  ${limitText(limit)}`]),
      ...(limitOfOne === undefined ? [] : [`not one     ${limitText(limitOfOne)}`]),
      ...(largest === undefined ? [] : [`at most     ${people(largest.users)}: --users ${largest.users}`]),
      ...(changes.length === 0 ? [] : ["would keep it here:"]),
      ...changes.map(({ change, plan }) => `  ${change.padEnd(34)} ${axesText(plan.mesh.axes)}`),
    ].join("\n");
  }
  const { plan, ttftSeconds, tpotSeconds } = load;
  const { pricePerHour, costPerMillionTokens } = plan.estimates;
  return [
    `${people(load.users)} at once ${slo === undefined ? "fit" : "keep"}${load.users === 1 ? "s" : ""}${slo === undefined ? "" : ` ${slo}`}`,
    `first token ${short(ttftSeconds)} s, ${short(tpotSeconds * 1e3)} ms a token, ${short(together(load))} tokens/s together`,
    `layout      ${axesText(plan.mesh.axes)}`,
    ...(pricePerHour === undefined || costPerMillionTokens === undefined
      ? []
      : [`price       $${short(pricePerHour)} an hour, $${short(costPerMillionTokens)} a million generated tokens`]),
    ...(limit === undefined ? [] : [`limited by  ${limitText(limit)}`]),
    ...plan.notes.map((text) => `note: ${text}`),
  ].join("\n");
}

/** Answers for one machine. @returns the exit code */
export function printLoad(request: PlanRequest, flags: LoadFlags, prices: PriceCatalogue): number {
  const level = levelOf(flags);
  const found = answerLoad(request, level, flags.users);
  const { load } = found;
  const answer =
    load === undefined ? found : { ...found, load: { ...load, plan: withPrice(load.plan, request.inventory, prices) } };
  const changes = load === undefined ? loadChanges(request, level, flags.users ?? 1) : [];
  if (flags.json === true) {
    const { largest, limit, limitOfOne } = answer;
    const named = changes.map(({ change, plan }) => ({ change, axes: plan.mesh.axes }));
    printJson({
      schemaVersion: 1,
      load: answer.load ?? null,
      ...(limit === undefined ? {} : { limit }),
      ...(limitOfOne === undefined ? {} : { limitOfOne }),
      ...(largest === undefined ? {} : { largestUsers: largest.users }),
      ...(load === undefined ? { changes: named } : {}),
    });
  } else print(`${renderLoad(answer, flags, changes)}\n`);
  return load === undefined ? EXIT.checkFailed : EXIT.done;
}

function cells({ name, load, largest, limit, limitOfOne }: ComparedLoad, users: number | undefined): string[] {
  const why = [limit, limitOfOne]
    .flatMap((found) => (found === undefined ? [] : [limitText(found)]))
    .join("; not one: ");
  if (load === undefined) {
    const most =
      largest === undefined ? (limitOfOne === undefined ? "no" : "no, not 1") : `no, at most ${largest.users}`;
    return [printableLine(name), users === undefined ? "0" : most, "-", "-", "-", "-", "-", "-", why];
  }
  const { plan, ttftSeconds, tpotSeconds } = load;
  const { pricePerHour, costPerMillionTokens } = plan.estimates;
  return [
    printableLine(name),
    users === undefined ? String(load.users) : "yes",
    axesText(plan.mesh.axes),
    short(together(load)),
    `${short(ttftSeconds)} s`,
    `${short(tpotSeconds * 1e3)} ms`,
    pricePerHour === undefined ? "-" : `$${short(pricePerHour)}`,
    costPerMillionTokens === undefined ? "-" : `$${short(costPerMillionTokens)}`,
    why,
  ];
}

/** Answers for several machines, in one table. @returns the exit code: 1 where none serves */
export function printComparedLoads(
  request: Omit<PlanRequest, "inventory">,
  machines: Parameters<typeof compareLoads>[1],
  flags: LoadFlags,
  prices: PriceCatalogue,
): number {
  const users = flags.users === undefined ? {} : { users: flags.users };
  const rows = compareLoads(request, machines, levelOf(flags), { ...users, prices });
  if (flags.json === true) {
    printJson({ schemaVersion: 1, hardware: rows.map((row) => ({ ...row, load: row.load ?? null })) });
  } else {
    const served = flags.users === undefined ? "users" : `${flags.users} users`;
    const head = ["hardware", served, "layout", "tokens/s", "first token", "a token", "$/hour", "$/M tokens", "limit"];
    print(`${tableOf([head, ...rows.map((row) => cells(row, flags.users))])}\n`);
  }
  return rows.some(({ load }) => load !== undefined) ? EXIT.done : EXIT.checkFailed;
}

/** @throws InvalidArgumentError where the question is of training, which serves nobody */
export function checkServes(flags: LoadFlags, train: string | undefined): void {
  if (train === undefined) return;
  const [option, value] = flags.slo === undefined ? ["--users", flags.users ?? 0] : ["--slo", flags.slo];
  throw new InvalidArgumentError(option, value, "no --train: it serves nobody");
}
