/**
 * The models of vendors' libraries against curves that others published. The curves stand beside the repository
 * (`../shared/conformance/nccl-curves`); without them this is skipped, and machine/cost's own tests hold single figures.
 * The whole table, through the command line: bench/simulator-accuracy.mjs.
 */
import { existsSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import {
  collectiveMachineOf,
  type EstimateOptions,
  predictCollective,
  type TimedOperation,
} from "../src/machine/cost/index.ts";
import { parseSystem } from "../src/machine/topology/index.ts";

interface PublishedCurve {
  readonly id: string;
  readonly class: string;
  readonly kind?: string;
  readonly rows: readonly { readonly bytes: number; readonly us: number }[];
}
interface ModelInput {
  readonly op: TimedOperation;
  readonly numRanks: number;
  readonly system: string;
  readonly p2p: boolean;
  readonly options: Omit<EstimateOptions, "devicesPerProcess"> & { readonly devicesPerProcess?: number | "host" };
  readonly devices?: readonly string[];
}
interface Statistics {
  readonly median: number;
  readonly within: number;
  readonly held: number;
}
interface Point {
  readonly class: string;
  readonly bytes: number;
}

const file = new URL("../../shared/conformance/nccl-curves/curves.json", import.meta.url);
const isThere = existsSync(file);

describe.skipIf(!isThere)(`published curves${isThere ? "" : " (not beside this repository)"}`, async () => {
  const folder = new URL("../bench/simulator-accuracy/", import.meta.url).href;
  const { modelInput } = (await import(`${folder}describe.mjs`)) as {
    modelInput: (curve: PublishedCurve) => ModelInput;
  };
  const { sizeClass, statistics } = (await import(`${folder}score.mjs`)) as {
    sizeClass: (bytes: number) => string;
    statistics: (points: readonly Point[]) => Statistics | undefined;
  };
  const curves = isThere ? (JSON.parse(readFileSync(file, "utf8")) as { curves: PublishedCurve[] }).curves : [];
  const points = curves
    .filter(({ kind }) => kind !== "kernel")
    .flatMap((curve) => {
      const { op, numRanks, system, p2p, options, devices } = modelInput(curve);
      const inventory = parseSystem(system);
      if (inventory === undefined) throw new Error(system);
      const ids = devices ?? inventory.devices.flatMap(({ family, id }) => (family === "cpu" ? [] : [id]));
      const machine = collectiveMachineOf(inventory, ids.slice(0, numRanks), { p2p });
      const { devicesPerProcess, ...rest } = options;
      const perHost = Math.ceil(machine.numRanks / machine.numHosts);
      const perProcess = devicesPerProcess === "host" ? perHost : devicesPerProcess;
      const given = { ...rest, ...(perProcess !== undefined && { devicesPerProcess: perProcess }) };
      return curve.rows.map(({ bytes, us }) => ({
        class: curve.class,
        bytes,
        us,
        ...predictCollective(op, bytes, machine, given),
      }));
    });

  it.each([
    ["small", 0.15],
    ["medium", 0.2],
    ["large", 0.08],
  ])("NVIDIA, %s: the median is within %d, four of five are in the printed range", (size, most) => {
    const own = points.filter((point) => !/^(MI\d|Gaudi)/.test(point.class) && sizeClass(point.bytes) === size);
    const { median, within, held } = statistics(own)!;
    expect(median).toBeLessThan(most);
    expect(held).toBeGreaterThan(0.8);
    if (size === "large") expect(within).toBeGreaterThan(0.85);
  });
  it("MI300X and its like: the median is within 0.2, four of five are in the printed range", () => {
    const { median, held } = statistics(points.filter((point) => /^MI3/.test(point.class)))!;
    expect(median).toBeLessThan(0.2);
    expect(held).toBeGreaterThan(0.8);
  });
});
