/**
 * Which devices the environment hides from this process. Rules of the vendors' runtimes: CUDA reads its list up to the
 * first entry that names no device; HIP's list counts among what ROCR's list left; an empty list hides all.
 */
import type { Device, Family } from "../topology/index.ts";

type Env = Readonly<Record<string, string | undefined>>;
type Maskable = Pick<Device, "family" | "index" | "uuid" | "parent" | "id">;

/** The variables that mask devices; they are recorded with a root. */
export const MASK_VARIABLES = [
  "CUDA_VISIBLE_DEVICES",
  "NVIDIA_VISIBLE_DEVICES",
  "ROCR_VISIBLE_DEVICES",
  "HIP_VISIBLE_DEVICES",
  "GPU_DEVICE_ORDINAL",
  "ZE_AFFINITY_MASK",
  "HABANA_VISIBLE_DEVICES",
  "TPU_VISIBLE_CHIPS",
  "TPU_VISIBLE_DEVICES",
  "NEURON_RT_VISIBLE_CORES",
] as const;

/** The ids of the devices that this process may see. */
export function visibleIds(devices: readonly Maskable[], env: Env): ReadonlySet<string> {
  const hidden = new Set<string>();
  const of = (family: Family) => devices.filter((d) => d.family === family);
  const keep = (all: readonly Maskable[], kept: readonly Maskable[]) => {
    for (const device of all) if (!kept.includes(device)) hidden.add(device.id);
  };
  const nvidia = of("nvidia-gpu");
  const container = env["NVIDIA_VISIBLE_DEVICES"];
  if (container !== undefined) keep(nvidia, inContainer(nvidia, container));
  const cuda = env["CUDA_VISIBLE_DEVICES"];
  if (cuda !== undefined) keep(nvidia, withParents(nvidia, select(nvidia, cuda)));
  let amd = of("amd-gpu");
  for (const variable of ["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"]) {
    const list = env[variable] ?? (variable === "HIP_VISIBLE_DEVICES" ? env["CUDA_VISIBLE_DEVICES"] : undefined);
    if (list === undefined) continue;
    const kept = select(amd, list, true);
    keep(amd, kept);
    amd = kept;
  }
  for (const [family, variable] of [
    ["intel-gpu", "ZE_AFFINITY_MASK"],
    ["gaudi", "HABANA_VISIBLE_DEVICES"],
    ["tpu", "TPU_VISIBLE_CHIPS"],
    ["tpu", "TPU_VISIBLE_DEVICES"],
  ] as const) {
    const list = env[variable];
    // Level Zero reads an empty mask as none; `all` is Habana's word.
    if (list === undefined || list === "all" || (family === "intel-gpu" && list === "")) continue;
    keep(of(family), select(of(family), list.replaceAll(/(\d+)\.\d+/g, "$1")));
  }
  return new Set(devices.filter((d) => !hidden.has(d.id)).map((d) => d.id));
}

/** Picks what a list names, up to the first entry that names nothing. */
function select(devices: readonly Maskable[], list: string, byPosition = false): Maskable[] {
  const picked: Maskable[] = [];
  const top = devices.filter((d) => d.parent === undefined);
  for (const entry of list.split(",").map((text) => text.trim())) {
    const match = /^\d{1,4}$/.test(entry)
      ? byPosition
        ? top[Number(entry)]
        : top.find((d) => d.index === Number(entry))
      : byUuid(devices, entry);
    if (match === undefined) break;
    if (!picked.includes(match)) picked.push(match);
  }
  return picked;
}

/** A UUID may be shortened as long as it is unique. */
function byUuid(devices: readonly Maskable[], entry: string): Maskable | undefined {
  if (!/^(GPU|MIG)-[\w/-]{2,}$/i.test(entry)) return undefined;
  const matches = devices.filter((d) => d.uuid?.toLowerCase().startsWith(entry.toLowerCase()));
  return matches.length === 1 ? matches[0] : undefined;
}

/** A named GPU brings its instances along, a named instance the GPU that carries it. */
function withParents(devices: readonly Maskable[], picked: readonly Maskable[]): Maskable[] {
  const ids = new Set(picked.map((d) => d.id));
  return devices.filter(
    (d) => ids.has(d.id) || (d.parent !== undefined && ids.has(d.parent)) || picked.some((p) => p.parent === d.id),
  );
}

/**
 * The container toolkit gives the container only the devices named, and these are numbered anew: numbers name devices of
 * the host and say nothing here, UUIDs do.
 */
function inContainer(devices: readonly Maskable[], list: string): readonly Maskable[] {
  if (list === "none" || list === "void") return [];
  const named = list.split(",").flatMap((entry) => byUuid(devices, entry.trim()) ?? []);
  if (named.length > 0) return withParents(devices, named);
  const numbers = list.split(",").filter((entry) => /^\s*\d{1,4}\s*$/.test(entry));
  const top = devices.filter((d) => d.parent === undefined);
  if (numbers.length === 0 || numbers.length >= top.length) return devices;
  return withParents(
    devices,
    top.filter((d) => numbers.some((n) => Number(n) === d.index)),
  );
}
