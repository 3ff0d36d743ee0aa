/** `chorale detect`: the devices of this machine or of a recorded root. */

import { type Command, InvalidArgumentError as CommanderArgumentError } from "commander";
import { formatSize, InvalidArgumentError } from "../../core/index.ts";
import { described, oneOf } from "../../core/internal.ts";
import {
  acceleratorMemory,
  type DetectOptions,
  detect,
  parseFamily,
  recordMachine,
  type Timing,
  watch,
} from "../../machine/hardware/index.ts";
import type { Device, Family, Inventory } from "../../machine/topology/index.ts";
import { counted } from "./counted.ts";
import { EXIT } from "./exit-codes.ts";
import {
  type Alert,
  COLUMNS,
  cells,
  DEFAULT_COLUMNS,
  parseAlert,
  parseColumn,
  parseColumns,
  sortDevices,
  table,
} from "./hardware-columns.ts";
import { leaveIfStuck } from "./hung-driver-exit.ts";
import { clearScreen, print, printError, printJson } from "./output.ts";

interface Flags {
  readonly json?: boolean;
  readonly format?: string;
  readonly columns?: string;
  readonly sort?: string;
  readonly family?: string;
  readonly watch?: number;
  readonly alert?: string;
  readonly timings?: boolean;
  readonly exec: boolean;
  readonly record?: string;
  readonly redact: boolean;
  readonly root?: string;
  readonly tools?: string;
}

const FORMATS = ["table", "tsv", "json"] as const;
type Format = (typeof FORMATS)[number];

function seconds(text: string): number {
  const value = Number(text);
  if (!/^\d+(\.\d+)?$/.test(text) || value < 0.1 || value > 86_400) {
    throw new CommanderArgumentError("expected seconds from 0.1 to 86400.");
  }
  return value;
}

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .option("--json", "print one JSON document")
    .option("--format <format>", `${FORMATS.join(", ")} (default: table)`)
    .option("--columns <columns>", `of the table: ${Object.keys(COLUMNS).join(", ")}`)
    .option("--sort <column>", "sort by a column: numbers downwards, text upwards")
    .option("--family <family>", "probe and show one family (or several, with commas) beside the CPU")
    .option("--watch <seconds>", "detect again and again, and show what changed", seconds)
    .option("--alert <condition>", "exit with 1 when a device fulfils it: memory>90%, temperature>=80, free<2G")
    .option("--timings", "say on stderr how long each probe took")
    .option("--no-exec", "start no vendor tool")
    .option("--record <folder>", "write what was seen to a folder that --root reads")
    .option("--no-redact", "with --record: keep serial numbers, UUIDs and addresses")
    .option("--root <folder>", "read a recorded root instead of this machine; nothing is executed")
    .option("--tools <folder>", "with --root: run the tools of this folder instead of taking recorded outputs")
    .action(async (flags: Flags) => {
      exit(await run(flags));
    });
}

async function run(flags: Flags): Promise<number> {
  const format = parseFormat(flags);
  const columns = flags.columns === undefined ? DEFAULT_COLUMNS : parseColumns(flags.columns);
  const sort = flags.sort === undefined ? undefined : parseColumn(flags.sort, "--sort");
  const alert = flags.alert === undefined ? undefined : parseAlert(flags.alert);
  const families = flags.family?.split(",").map((name) => parseFamily(name.trim()));
  if (flags.record === undefined && !flags.redact)
    throw new InvalidArgumentError("--no-redact", described("given"), "--record beside it");
  if (format === "json" && flags.columns !== undefined)
    throw new InvalidArgumentError("--columns", flags.columns, "nothing: JSON has all of them");
  if (flags.record !== undefined && flags.watch !== undefined) {
    throw new InvalidArgumentError("--record", flags.record, "not to be used together with --watch");
  }
  const timings: Timing[] = [];
  const options: DetectOptions = {
    exec: flags.exec,
    onTiming: (timing) => timings.push(timing),
    ...(families !== undefined && { families }),
    ...(flags.root !== undefined && { root: flags.root }),
    ...(flags.tools !== undefined && { tools: flags.tools }),
  };
  if (flags.tools !== undefined && flags.root !== undefined && flags.exec) {
    printError(`chorale detect: tools of ${flags.tools} are executed\n`);
  }
  const view: View = { format, columns, sort, families, alert };
  if (flags.watch !== undefined) return watchLoop(flags.watch, options, view);
  const inventory =
    flags.record === undefined
      ? await detect(options)
      : await recordMachine(flags.record, { ...options, redact: flags.redact });
  show(inventory, view);
  if (flags.timings === true) {
    for (const { name, milliseconds } of timings) printError(`${name.padEnd(14)} ${milliseconds.toFixed(1)} ms\n`);
  }
  const code = alertsOf(inventory, view);
  leaveIfStuck(inventory, code);
  return code;
}

interface View {
  readonly format: Format;
  readonly columns: readonly string[];
  readonly sort: string | undefined;
  readonly families: readonly Family[] | undefined;
  readonly alert: Alert | undefined;
}

function parseFormat(flags: Flags): Format {
  if (flags.format === undefined) return flags.json === true ? "json" : "table";
  const format = oneOf(flags.format, "--format", FORMATS);
  if (flags.json === true && format !== "json") {
    throw new InvalidArgumentError("--format", flags.format, "json or nothing, since --json is given");
  }
  return format;
}

function alertsOf(inventory: Inventory, { alert }: View): number {
  if (alert === undefined) return EXIT.done;
  const found = inventory.devices.flatMap((device) => alert.check(device) ?? []);
  for (const message of found) printError(`alert ${alert.text}: ${message}\n`);
  return found.length > 0 ? EXIT.checkFailed : EXIT.done;
}

async function watchLoop(intervalSeconds: number, options: DetectOptions, view: View): Promise<number> {
  const stop = new AbortController();
  const onSignal = () => stop.abort();
  process.once("SIGINT", onSignal);
  process.once("SIGTERM", onSignal);
  // A reader that closes the pipe (`| head -1`) ends the watch.
  process.stdout.once("error", onSignal);
  let code: number = EXIT.done;
  try {
    for await (const { inventory, deltas, sequence } of watch({
      ...options,
      intervalMs: intervalSeconds * 1000,
      signal: stop.signal,
    })) {
      if (view.format === "json") {
        // One document a line: what `jq` and log collectors read.
        printJson({ sequence, deltas, ...inventory });
      } else {
        clearScreen();
        show(inventory, view);
        for (const delta of deltas) print(`${describe(delta)}\n`);
      }
      code = Math.max(code, alertsOf(inventory, view));
    }
  } finally {
    process.off("SIGINT", onSignal);
    process.off("SIGTERM", onSignal);
    process.stdout.off("error", onSignal);
  }
  return code;
}

function describe(delta: {
  readonly id: string;
  readonly kind: string;
  readonly memoryUsedBytes?: number;
  readonly temperatureC?: number;
  readonly powerWatts?: number;
  readonly utilizationPercent?: number;
}): string {
  const signed = (value: number, text: string) => `${value < 0 ? "-" : "+"}${text}`;
  const parts = [
    delta.memoryUsedBytes === undefined
      ? ""
      : `memory ${signed(delta.memoryUsedBytes, formatSize(Math.abs(delta.memoryUsedBytes)))}`,
    delta.temperatureC === undefined
      ? ""
      : `temperature ${signed(delta.temperatureC, `${Math.abs(delta.temperatureC)} C`)}`,
    delta.powerWatts === undefined
      ? ""
      : `power ${signed(delta.powerWatts, `${Math.abs(delta.powerWatts).toFixed(1)} W`)}`,
    delta.utilizationPercent === undefined
      ? ""
      : `utilization ${signed(delta.utilizationPercent, `${Math.abs(delta.utilizationPercent)} %`)}`,
  ].filter((part) => part !== "");
  return `${delta.id}: ${delta.kind === "changed" ? parts.join(", ") : delta.kind}`;
}

function show(inventory: Inventory, view: View): void {
  if (view.format === "json") printJson(inventory, 2);
  else print(render(inventory, view));
}

function render(inventory: Inventory, view: View): string {
  const shown = inventory.devices.filter(
    (device) => view.families === undefined || view.families.includes(device.family),
  );
  const devices = view.sort === undefined ? shown : sortDevices(shown, view.sort);
  if (view.format === "tsv") {
    return [[...view.columns], ...devices.map((device) => cells(device, view.columns, false))]
      .map((row) => `${row.join("\t")}\n`)
      .join("");
  }
  const headings = view.columns.map((name) => COLUMNS[name]?.heading ?? name);
  const right = view.columns.map((name) => COLUMNS[name]?.alignRight === true);
  const rows = devices.map((device) => cells(device, view.columns, true));
  return `${table(headings, rows, right)}\n${summary(inventory, devices)}`;
}

function summary(inventory: Inventory, devices: readonly Device[]): string {
  const accelerators = devices.filter((device) => device.family !== "cpu" && device.parent === undefined);
  const lines = [
    accelerators.length === 0
      ? "no accelerator found"
      : `${counted(accelerators.length, "accelerator")}, ${formatSize(acceleratorMemory(inventory))} of their memory visible`,
    ...inventory.warnings.map(
      ({ source, message, hint }) => `warning: ${source}: ${message}${hint === undefined ? "" : `\n         ${hint}`}`,
    ),
  ];
  return `\n${lines.join("\n")}\n`;
}
