/** Slices of Google's TPUs: how many chips, in which shape, and which dimensions wrap around. */
import { InvalidArgumentError } from "../../core/index.ts";
import { buildInventory, cpu, type HostSpec, type Preset, part, pcie, torus } from "./preset-builder.ts";

const TPU = {
  v4: { key: "tpu-v4", coresPerChip: 2, iciGBps: 50, dims: 3, maxChips: 4096 },
  v5p: { key: "tpu-v5p", coresPerChip: 2, iciGBps: 100, dims: 3, maxChips: 8960 },
  // 1,200 GB/s a chip in both directions, over six links. Slices count chips.
  v7x: { key: "tpu-v7x", coresPerChip: 1, iciGBps: 100, dims: 3, maxChips: 9216 },
  v5e: { key: "tpu-v5e", coresPerChip: 1, iciGBps: 50, dims: 2, maxChips: 256 },
  v6e: { key: "tpu-v6e", coresPerChip: 1, iciGBps: 112, dims: 2, maxChips: 256 },
} as const;

/** The most cubic shape of `chips` in the slice's dimensions; undefined when Google offers none of that size. */
function tpuShape(chips: number, dims: number): number[] | undefined {
  let best: number[] | undefined;
  const fill = (shape: number[], left: number): void => {
    if (shape.length === dims - 1) {
      const full = [...shape, left].sort((a, b) => a - b);
      const spread = (s: readonly number[]) => s.reduce((a, b) => a + b, 0);
      if (best === undefined || spread(full) < spread(best)) best = full;
      return;
    }
    for (let extent = 1; extent <= left; extent++) if (left % extent === 0) fill([...shape, extent], left / extent);
  };
  fill([], chips);
  return best;
}

/**
 * A TPU slice under Google's own names: `v4-N` and `v5p-N` count TensorCores (two a chip), `v5e-N`, `v6e-N` and `v7x-N`
 * (Ironwood) chips. Dimensions of v4/v5p/v7x wrap when all are multiples of 4, those of v5e/v6e when 16 long. Four chips a host (one host
 * for v5e/v6e up to 8).
 */
export function tpuPreset(name: string): Preset | undefined {
  const match = /^tpu-(v4|v5e|v5p|v6e|v7x)-(\d{1,5})$/.exec(name);
  if (match === null) return undefined;
  const spec = TPU[match[1] as keyof typeof TPU];
  const chips = Number(match[2]) / spec.coresPerChip;
  const shape =
    Number.isInteger(chips) && chips >= 1 && chips <= spec.maxChips ? tpuShape(chips, spec.dims) : undefined;
  const powerOfTwo = Number.isInteger(Math.log2(chips));
  if (shape === undefined || (!powerOfTwo && (spec.dims === 2 || chips % 64 !== 0))) {
    const accepted =
      spec.dims === 2
        ? "a power of two from 1 to 256 chips"
        : spec.coresPerChip === 2
          ? "2 TensorCores a chip: 8, 16, 32, 64, 128, then multiples of 128"
          : "4, 8, 16, 32, 64 chips, then multiples of 64";
    throw new InvalidArgumentError("preset", name, `${match[1]}-N with N as Google offers it (${accepted})`);
  }
  const wraps = shape.map((extent) => (spec.dims === 3 ? shape.every((e) => e % 4 === 0) : extent === 16));
  const perHost = spec.dims === 2 && chips <= 8 ? chips : Math.min(4, chips);
  const host: HostSpec = {
    cpu: cpu("AMD EPYC (TPU host)", 2, 56, 512, 409.6),
    part: part(spec.key),
    numDevices: perHost,
    hostLink: pcie(4),
    devicesPerPcieSwitch: 0,
  };
  return {
    name,
    summary: `${chips} TPU ${match[1]} chips, ICI ${shape.join("x")}`,
    sources: [host.part.source, "Google Cloud TPU system architecture: ICI links and slice shapes"],
    defaultNic: "1x100GbE",
    build: () => buildInventory(host, chips / perHost, name, { kind: "ici", links: torus(shape, wraps, spec.iciGBps) }),
  };
}
