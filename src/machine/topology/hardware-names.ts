/**
 * What people call accelerators: `h100`, `8x h100`, `a100-80-pcie`, `RTX 4090`, `mi300x`, `nvidia/rtx-a6000`. A part's
 * name gives one device of it, or as many as the count says, in the machine that such devices come in.
 */
import { wordTable } from "../../core/index.ts";
import { PARTS, type Part, partByKey } from "./parts.ts";

/** Spellings without separators to keys of parts. A key itself always works. */
const ALIASES: Readonly<Record<string, string>> = wordTable({
  a100: "a100-80",
  a100sxm: "a100-80",
  a100sxm4: "a100-80",
  a100sxm80: "a100-80",
  a10080sxm: "a100-80",
  a10040sxm: "a100-40",
  a100sxm40: "a100-40",
  a100sxm480: "a100-80",
  a10080sxm4: "a100-80",
  a10040sxm4: "a100-40",
  a100sxm440: "a100-40",
  a10080pcie: "a100-80-pcie",
  a10040pcie: "a100-40-pcie",
  a100pcie: "a100-80-pcie",
  a100pcie80: "a100-80-pcie",
  a100pcie40: "a100-40-pcie",
  h100sxm: "h100",
  h100sxm5: "h100",
  h100hbm3: "h100",
  h10080: "h100",
  h10080sxm: "h100",
  h10080sxm5: "h100",
  h100sxm80: "h100",
  h100sxm580: "h100",
  h10080pcie: "h100-pcie",
  h100pcie80: "h100-pcie",
  h100nvl94: "h100-nvl",
  h200sxm: "h200",
  h200141: "h200",
  h200sxm141: "h200",
  h200141sxm: "h200",
  b200sxm: "b200",
  b200192: "b200",
  b200180: "b200",
  gh200: "gh200-96",
  v100: "v100-16",
  v100sxm2: "v100-16",
  rtxa6000: "a6000",
  rtxa5000: "a5000",
  rtxa4000: "a4000",
  rtx6000: "rtx6000-ada",
  "6000ada": "rtx6000-ada",
  rtxada6000: "rtx6000-ada",
  rtx6000adageneration: "rtx6000-ada",
  rtxpro6000blackwell: "rtx-pro-6000",
  rtxpro6000blackwellworkstationedition: "rtx-pro-6000",
  rtxpro6000blackwellserveredition: "rtx-pro-6000-server",
  pro6000: "rtx-pro-6000",
  rtx4080super: "rtx4080s",
  "4080super": "rtx4080s",
  rtx4070super: "rtx4070s",
  "4070super": "rtx4070s",
  "4070tisuper": "rtx4070ti-super",
  rtx4070tis: "rtx4070ti-super",
  rtx2080super: "rtx2080s",
  "2080super": "rtx2080s",
  rtx2070super: "rtx2070s",
  "2070super": "rtx2070s",
  rtx2060super: "rtx2060s",
  "2060super": "rtx2060s",
  quadrortx4000: "rtx4000-turing",
  gtxtitanx: "titan-x-maxwell",
  rxvega64: "vega64",
  rxvega56: "vega56",
  gtx1660super: "gtx1660s",
  "1660super": "gtx1660s",
  rtxa4500: "a4500",
  rtxa5500: "a5500",
  rtxa2000: "a2000",
  quadrortx6000: "rtx6000-turing",
  quadrortx5000: "rtx5000-turing",
  rtx6000blackwell: "rtx-pro-6000",
  rtx6000pro: "rtx-pro-6000",
  rtx6000problackwell: "rtx-pro-6000",
  rtx6000promaxq: "rtx-pro-6000-max-q",
  pro6000maxq: "rtx-pro-6000-max-q",
  h203e: "h20-141",
  "5090mobile": "rtx5090-laptop",
  "4090mobile": "rtx4090-laptop",
  spark: "gb10",
  dgxspark: "gb10",
  gb10spark: "gb10",
  orinnano: "jetson-orin-nano",
  orinnanosuper: "jetson-orin-nano",
  jetsonorinnanosuper: "jetson-orin-nano",
  orinnx: "jetson-orin-nx",
  agxorin: "jetson-agx-orin",
  jetsonorin: "jetson-agx-orin",
  jetsonorinagx: "jetson-agx-orin",
  agxthor: "jetson-agx-thor",
  jetsonthor: "jetson-agx-thor",
  ryzenaimax395: "strix-halo",
  aimax395: "strix-halo",
  ryzenaimax: "strix-halo",
  "8060s": "strix-halo",
  frameworkdesktop: "strix-halo",
  quadrortx8000: "rtx8000",
  w7900: "pro-w7900",
  w7800: "pro-w7800",
  w780048: "pro-w7800-48",
  w6800: "pro-w6800",
  vii: "radeon-vii",
  aipror9700: "r9700",
  ...Object.fromEntries(
    ["570", "580", "590", "5700", "5700xt", "6600", "6600xt", "6650xt", "6750xt"].map((own) => [own, `rx${own}`]),
  ),
  tpuv7: "tpu-v7x",
  tpu7x: "tpu-v7x",
  ironwood: "tpu-v7x",
  tpuironwood: "tpu-v7x",
  h800sxm: "h800",
  h800sxm5: "h800",
  a800sxm: "a800",
  a800sxm4: "a800",
  h20sxm: "h20",
  "6700xt": "rx6700xt",
  "6800xt": "rx6800xt",
  "6900xt": "rx6900xt",
  "6950xt": "rx6950xt",
  "7600xt": "rx7600xt",
  "7700xt": "rx7700xt",
  "7800xt": "rx7800xt",
  "7900gre": "rx7900gre",
  "9060xt": "rx9060xt",
  "7900xtx": "rx7900xtx",
  "7900xt": "rx7900xt",
  "9070xt": "rx9070xt",
  arcb580: "arc-b580",
  b580: "arc-b580",
  arca770: "arc-a770",
  a770: "arc-a770",
  trainium: "trainium1",
  trn1: "trainium1",
  trn2: "trainium2",
  inf2: "inferentia2",
});

const squeeze = (text: string) =>
  text
    .toLowerCase()
    .replace(/^(?:nvidia|amd|intel|habana|aws)[\s/_-]+/, "")
    .replace(/\b(?:geforce|tesla|instinct|radeon|gpu|tensor core)\b/g, "")
    .replace(/(\d+)\s*(?:gb|gib)\b/g, "$1")
    .replace(/[^a-z0-9]/g, "");

const BY_SQUEEZED = new Map(PARTS.map((part) => [squeeze(part.key), part]));

/** A size of memory that a name has may differ from what the driver reports by this share: `24gb` is 24,564 MiB. */
const SAME_MEMORY = 0.08;

/** Finds a part by any usual spelling of its name; undefined when there is none. */
function partNamed(text: string): Part | undefined {
  const exact = partSpelled(text);
  const sized = /^(.*?)[\s(-]*(\d{1,3})\s*(?:gb|gib)\)?(.*)$/i.exec(text);
  if (exact !== undefined || sized === null) return exact;
  // `rtx 3060 12gb`: the size is its own.
  const part = partSpelled(`${sized[1]} ${sized[3]}`);
  const bytes = Number(sized[2]) * 2 ** 30;
  const own = part?.installedBytes ?? part?.memoryBytes ?? 0;
  return Math.abs(own / bytes - 1) <= SAME_MEMORY ? part : undefined;
}

function partSpelled(text: string): Part | undefined {
  const plain = squeeze(text);
  const direct = BY_SQUEEZED.get(plain) ?? BY_SQUEEZED.get(`rtx${plain}`) ?? BY_SQUEEZED.get(`gtx${plain}`);
  if (direct !== undefined) return direct;
  const alias = Object.hasOwn(ALIASES, plain) ? ALIASES[plain] : undefined;
  if (alias !== undefined) return partByKey(alias);
  return PARTS.find((part) => squeeze(part.name) === plain);
}

/** A part and a count: `h100`, `8x h100`, `h100 x8`, `h100-8`, `4xrtx3090`. Undefined when no part is named. */
export function readPartCount(text: string): { readonly part: Part; readonly count: number } | undefined {
  const before = /^\s*(\d{1,5})\s*[x*×]\s*(.+?)\s*$/i.exec(text);
  const after = /^\s*(.+?)\s*[x*×]\s*(\d{1,5})\s*$/i.exec(text);
  const tail = /^\s*(.+?)-(\d{1,2})\s*$/.exec(text);
  for (const [name, count] of [
    [text, "1"],
    [before?.[2], before?.[1]],
    [after?.[1], after?.[2]],
    [tail?.[1], tail?.[2]],
  ] as const) {
    if (name === undefined || count === undefined || Number(count) < 1) continue;
    const part = partNamed(name);
    if (part !== undefined) return { part, count: Number(count) };
  }
  return undefined;
}
