/** `chorale topo`: how the devices are linked; with --measure, what the links carry. */

import type { Command } from "commander";
import { InvalidArgumentError } from "../../core/index.ts";
import { oneOf } from "../../core/internal.ts";
import { detect, measureLinks, type PairMeasurement, resolveHardware } from "../../machine/hardware/index.ts";
import { type Inventory, islands, ringOrders } from "../../machine/topology/index.ts";
import { EXIT } from "./exit-codes.ts";
import { table } from "./hardware-columns.ts";
import { leaveIfStuck } from "./hung-driver-exit.ts";
import { print, printJson, showProgress } from "./output.ts";
import { renderDot, renderMatrix } from "./topology-render.ts";

interface Flags {
  readonly root?: string;
  readonly tools?: string;
  readonly hardware?: string;
  readonly exec: boolean;
  readonly measure?: boolean;
  readonly bounds?: boolean;
  readonly format?: string;
  readonly json?: boolean;
}

const FORMATS = ["matrix", "json", "dot"] as const;

export function configure(command: Command, exit: (code: number) => void): void {
  command
    .option("--root <folder>", "read a recorded root instead of this machine; nothing is executed")
    .option("--tools <folder>", "with --root: run the tools of this folder instead of taking recorded outputs")
    .option("--hardware <what>", "show a preset, N x PRESET or an inventory file instead")
    .option("--no-exec", "start no vendor tool")
    .option("--measure", "copy between every two NVIDIA GPUs, in each direction, and compare with the links")
    .option("--bounds", "what no schedule of each collective is faster than here, and which links bind")
    .option("--format <format>", `${FORMATS.join(", ")} (default: matrix)`)
    .option("--json", "the same as --format json")
    .action(async (flags: Flags) => {
      exit(await run(flags));
    });
}

async function run(flags: Flags): Promise<number> {
  const wanted = flags.format ?? (flags.json === true ? "json" : "matrix");
  const format = oneOf(wanted, "--format", FORMATS);
  if (flags.json === true && format !== "json")
    throw new InvalidArgumentError("--format", wanted, "json or nothing, since --json is given");
  if (flags.hardware !== undefined && flags.root !== undefined) {
    throw new InvalidArgumentError("--hardware", flags.hardware, "not to be used together with --root");
  }
  if (flags.measure === true && (flags.root !== undefined || flags.hardware !== undefined)) {
    throw new InvalidArgumentError("--measure", true, "to be used on the live machine, without --root and --hardware");
  }
  const inventory =
    flags.hardware !== undefined
      ? await resolveHardware(flags.hardware)
      : await detect({
          exec: flags.exec,
          ...(flags.root !== undefined && { root: flags.root }),
          ...(flags.tools !== undefined && { tools: flags.tools }),
        });
  if (flags.bounds === true && format === "dot") {
    throw new InvalidArgumentError("--format", "dot", "matrix or json with --bounds");
  }
  const bounds = flags.bounds === true ? await (await import("./topo-bounds.ts")).boundsOf(inventory) : undefined;
  const measured = flags.measure === true ? measure(inventory) : undefined;
  if (format === "dot") print(renderDot(inventory));
  else if (format === "json")
    printJson({ ...document(inventory, measured), ...(bounds !== undefined && { bounds }) }, 2);
  else {
    print(renderMatrix(inventory) + (measured === undefined ? "" : `\n${renderMeasured(measured)}`));
    if (bounds !== undefined) print(`\n${(await import("./topo-bounds.ts")).renderBounds(bounds)}`);
  }
  leaveIfStuck(inventory, EXIT.done);
  return EXIT.done;
}

function measure(inventory: Inventory): PairMeasurement[] {
  const onProgress = (done: number, total: number) =>
    showProgress(done === total ? "" : `measuring ${done} of ${total}`);
  return measureLinks(inventory, { onProgress });
}

function document(inventory: Inventory, measured: readonly PairMeasurement[] | undefined) {
  const groups = islands(inventory, { includeMasked: true });
  return {
    schemaVersion: inventory.schemaVersion,
    devices: inventory.devices.map(({ id, family, name, numaNode, pciAddress }) => ({
      id,
      family,
      name,
      numaNode,
      pciAddress,
    })),
    topology: inventory.topology,
    islands: groups.map((island) => ({
      ...island,
      ...(island.devices.length > 1 &&
        island.devices.length <= 16 && { rings: ringOrders(inventory.topology, island.devices) }),
    })),
    ...(measured !== undefined && { measured }),
    warnings: inventory.warnings,
  };
}

function renderMeasured(measured: readonly PairMeasurement[]): string {
  const rows = measured.map((pair) => [
    pair.from,
    pair.to,
    pair.bandwidthGBps.toFixed(1),
    pair.linkGBps === undefined ? "-" : pair.linkGBps.toFixed(1),
    pair.fractionOfLink === undefined ? "-" : `${(100 * pair.fractionOfLink).toFixed(1)} %`,
    pair.latencyUs.toFixed(2),
    pair.peerAccess ? pair.engine : "via host",
  ]);
  return `${table(["FROM", "TO", "GB/S", "LINK", "REACHED", "LATENCY US", "ENGINE"], rows, [false, false, true, true, true, true, false])}\n`;
}
