/** NCCL's versions, as far as its choice of algorithms depends on them (release notes of NVIDIA/nccl). */
import { InvalidArgumentError } from "../../core/index.ts";
import { NCCL_NVLS } from "./nccl-constants.ts";

/** Reads `2.27.7` or `2.27`. @throws InvalidArgumentError */
export function parseNcclVersion(text: string): string {
  if (!/^\d{1,2}(\.\d{1,3}){1,2}$/.test(text))
    throw new InvalidArgumentError("--nccl-version", text, "a version such as 2.27.7");
  return text;
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
