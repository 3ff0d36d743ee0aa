/**
 * Names of systems as people say them, written as `parseSystem` takes them: `2 x DGX H100` is `2x dgx-h100`, `four 3090s` is
 * `4x 3090`, `mac studio m3 ultra 512gb` is `m3-ultra-512gb`, `aws g5.12xlarge` is `g5.12xlarge`. Nothing is guessed: what the
 * respelled name does not name stays unknown.
 */
import { wordTable } from "../../core/index.ts";

const NUMBERS: Readonly<Record<string, number>> = wordTable({
  one: 1,
  single: 1,
  two: 2,
  dual: 2,
  three: 3,
  triple: 3,
  four: 4,
  quad: 4,
  six: 6,
  eight: 8,
  ten: 10,
  sixteen: 16,
});

/** Boards that are sold in eights, where a count is left out. */
const EIGHTS = /^hgx-(?:a100|a800|h100|h800|h20|h200|b200|b300)$/;

const withoutOwner = (name: string) =>
  name
    // Google's own names of slices: `v5litepod-16`, `tpu v6e-8`, `trillium-8`.
    .replace(
      /^(?:(?:google|cloud)\s+)*(?:tpu[\s-]*)?(?=v(?:4|5e|5p|5litepod|6e|7x?)-\d+$|(?:trillium|ironwood)-\d+$)/,
      "tpu-",
    )
    .replace(/^tpu-v5litepod-/, "tpu-v5e-")
    .replace(/^tpu-trillium-/, "tpu-v6e-")
    .replace(/^(?:tpu-(?:ironwood|v7)|tpu7x)-/, "tpu-v7x-")
    .replace(/^(?:aws|amazon|ec2|gcp|google(?: cloud)?|azure|oci|oracle)\s+(?=\S)/, "")
    .replace(/^(?:apple\s+)?(?:mac(?:book)?\s*(?:studio|pro|mini|air)?|imac)\s+(?:with\s+)?(?=m\d)/, "")
    .replace(/^apple\s+(?=m\d)/, "");

/** Ways to write a name without spaces: presets have hyphens, Azure's instances underscores. */
function spellings(name: string): string[] {
  const words = withoutOwner(name).replace(/\b(?:instances?|machines?|nodes?|hosts?|servers?|boxes|gpus?)$/, "");
  const plain = words.trim().replace(/^nvidia\s+/, "");
  const hyphens = plain.replace(/\s+/g, "-");
  const singular = plain.replace(/s$/, "");
  return [
    ...(EIGHTS.test(hyphens) ? [`${hyphens}-8`] : []),
    hyphens,
    plain.replace(/\s+/g, "_"),
    plain,
    singular.replace(/\s+/g, "-"),
    singular,
  ];
}

/** The same system in other spellings, likeliest first, with the text's own `--nic` kept. */
export function respelled(text: string): readonly string[] {
  const [, system = "", nic = ""] = /^(.*?)(\s+--nic[\s=]+\S+)?\s*$/i.exec(text) ?? [];
  const lower = system.trim().toLowerCase().replace(/\s+/g, " ");
  const counted = /^(\d{1,5}) ?[x×*]? ?(\D.*|\d{4} ?\w*.*)$/.exec(lower);
  const word = /^([a-z]+) (.+)$/.exec(lower);
  const number = NUMBERS[word?.[1] ?? ""];
  const ways = [
    ...spellings(lower),
    ...(counted === null ? [] : spellings(counted[2] ?? "").map((name) => `${counted[1]}x ${name}`)),
    ...(word === null || number === undefined ? [] : spellings(word[2] ?? "").map((name) => `${number}x ${name}`)),
  ];
  return [...new Set(ways)].filter((way) => way !== lower && way !== "").map((way) => `${way}${nic}`);
}
