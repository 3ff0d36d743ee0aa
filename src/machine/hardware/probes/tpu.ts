/**
 * Google TPUs: chips by their PCI ids (those that jax's hardware_utils lists), generation by id or by the driver's
 * tpu_version. The chips of one host stand in a 2x2 or 2x4 board, whose ICI links are the board's; links to other hosts
 * show in no file of this one.
 */
import { wordTable } from "../../../core/index.ts";
import { dtypesOf, findPart, partFields } from "../../topology/index.ts";
import { count, field } from "../field-readers.ts";
import { defined } from "../pci.ts";
import type { DeviceDraft, LinkDraft, Probe, ProbeContext, ProbeWarning } from "../probe.ts";
import { accelCards } from "./linux-accel-class.ts";

const GOOGLE = 0x1ae0;
/** jax/_src/hardware_utils.py: device ids of TPU generations. */
const VERSIONS: Readonly<Record<number, string>> = {
  39: "v3",
  94: "v4",
  98: "v5p",
  99: "v5e",
  111: "v6e",
  118: "v7x",
};
/** Words that drivers and Google Cloud use for the generations. */
const WORDS: readonly (readonly [RegExp, string])[] = [
  [/v7x?|7x/i, "v7x"],
  [/v6(e|lite)|trillium/i, "v6e"],
  [/v5p/i, "v5p"],
  [/v5(e|lite)/i, "v5e"],
  [/v4/i, "v4"],
  [/v3/i, "v3"],
  [/v2/i, "v2"],
];
/** GB/s of one ICI link in one direction (Google Cloud TPU documentation, per chip over its links). */
const ICI_GBPS: Readonly<Record<string, number>> = wordTable({ v4: 50, v5e: 50, v5p: 100, v6e: 112 });

export const tpuProbe: Probe = {
  name: "tpu",
  families: ["tpu"],
  platforms: ["linux"],
  run: async (context) => {
    const warnings: ProbeWarning[] = [];
    const chips = await findChips(context);
    const worded = versionOf(context.env["TPU_ACCELERATOR_TYPE"]);
    const devices = chips.map((chip, index): DeviceDraft => {
      const version = chip.version ?? worded;
      if (version === undefined)
        warnings.push({ source: "tpu", message: `TPU chip ${index}: its generation is unknown` });
      const name = version === undefined ? "TPU" : `TPU ${version}`;
      const part = findPart("tpu", name);
      return {
        key: `tpu:${index}`,
        family: "tpu",
        vendor: "Google",
        name,
        index,
        ...(part !== undefined && { memoryBytes: part.memoryBytes, ...partFields(part) }),
        ...defined({ pciAddress: chip.pciAddress, arch: version, dtypes: dtypesOf("tpu", version) }),
      };
    });
    return { devices, links: boardLinks(devices, context.env["TPU_CHIPS_PER_HOST_BOUNDS"]), warnings };
  },
};

interface Chip {
  readonly pciAddress?: string;
  readonly version?: string;
}

function versionOf(text: string | undefined): string | undefined {
  return WORDS.find(([pattern]) => pattern.test(text ?? ""))?.[1];
}

async function findChips(context: ProbeContext): Promise<Chip[]> {
  const onBus = [...(await context.pci()).values()].filter(
    (f) => f.vendor === GOOGLE && VERSIONS[f.device] !== undefined,
  );
  if (onBus.length > 0)
    return onBus.map((f) => ({ pciAddress: f.address, ...defined({ version: VERSIONS[f.device] }) }));
  const cards = await accelCards(context, "tpu");
  const chips = await Promise.all(
    cards.map(async (card) => {
      const [version, num] = await Promise.all([
        context.files.readText(`${card.folder}/tpu_version`, 64),
        context.files.readText(`${card.folder}/chip_count`, 64),
      ]);
      const chip = defined({
        pciAddress: card.pciAddress,
        version: VERSIONS[card.device ?? 0] ?? versionOf(field(version)),
      });
      return Array.from({ length: Math.min(Math.max(count(num) ?? 1, 1), 16) }, () => chip);
    }),
  );
  return chips.flat();
}

/** Links of the host's own board: `2,2,1` of the environment, or 2x2 for four chips and 2x4 for eight. */
function boardLinks(devices: readonly DeviceDraft[], bounds: string | undefined): LinkDraft[] {
  const num = devices.length;
  const stated = bounds
    ?.split(",")
    .map(Number)
    .filter((n) => Number.isInteger(n) && n > 0 && n <= 16);
  const width =
    stated !== undefined && stated.length >= 2 && stated.reduce((a, b) => a * b, 1) === num
      ? (stated[0] ?? 1)
      : num === 4 || num === 8
        ? 2
        : 0;
  if (width === 0 || num < 2) return [];
  const links: LinkDraft[] = [];
  const arch = devices[0]?.arch ?? "";
  const facts = defined({ bandwidthGBps: ICI_GBPS[arch] });
  for (let i = 0; i < num; i++) {
    const neighbours = [...((i + 1) % width !== 0 ? [i + 1] : []), i + width];
    for (const j of neighbours) {
      const [a, b] = [devices[i], devices[j]];
      if (a !== undefined && b !== undefined) links.push({ a: a.key, b: b.key, kind: "ici", count: 1, ...facts });
    }
  }
  return links;
}
