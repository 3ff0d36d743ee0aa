/** NCCL's versions, as far as its choice of algorithms depends on them (release notes of NVIDIA/nccl). */
import { InvalidArgumentError } from "../../core/index.ts";
import { NCCL_NEWEST, NCCL_NVLS } from "./nccl-constants.ts";

/** Reads `2.27.7` or `2.27`. @throws InvalidArgumentError for what is no version of NCCL 2 */
export function parseNcclVersion(text: string): string {
  if (/^2\.(0|[1-9]\d?)(\.(0|[1-9]\d?))?$/.test(text)) return text;
  throw new InvalidArgumentError("--nccl-version", text, "a version of NCCL 2, such as 2.27.7");
}

/** The version that another one is timed as: the newest that is known, for those after it. */
export function timedAsVersion(version: string): string {
  const minor = version.split(".", 2).join(".");
  return isSince(minor, NCCL_NEWEST) && minor !== NCCL_NEWEST ? NCCL_NEWEST : version;
}

/** Says whether a version has what came with another one; a version that is not given is the newest. */
export function isSince(version: string | undefined, first: string): boolean {
  if (version === undefined) return true;
  const [a, b] = [version, first].map((text) => text.split(".").map(Number));
  for (let i = 0; i < 3; i++) {
    const difference = (a?.[i] ?? 0) - (b?.[i] ?? 0);
    if (difference !== 0) return difference > 0;
  }
  return true;
}

/** What a version expects of NVLS, as a share of a ring's bandwidth; undefined of those that judge by generation. */
export function nvlsShareOf(version: string | undefined): number | undefined {
  if (isSince(version, NCCL_NVLS.byGenerationSince)) return undefined;
  return NCCL_NVLS.shares.find(({ since }) => isSince(version, since))?.share;
}
