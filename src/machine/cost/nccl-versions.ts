/** NCCL's versions, as far as its choice of algorithms depends on them (release notes of NVIDIA/nccl). */
import { InvalidArgumentError } from "../../core/index.ts";
import { NCCL_KNOWN_MINORS, NCCL_NVLS } from "./nccl-constants.ts";

/** Reads `2.27.7` or `2.27`. @throws InvalidArgumentError for what is no version, and for one whose choices are not known */
export function parseNcclVersion(text: string): string {
  const [, major, minor] = /^(0|[1-9]\d?)\.(0|[1-9]\d{0,2})(?:\.(?:0|[1-9]\d{0,2}))?$/.exec(text) ?? [];
  if (minor === undefined) throw new InvalidArgumentError("--nccl-version", text, "a version such as 2.27.7");
  const { first, last } = NCCL_KNOWN_MINORS;
  if (major === "2" && Number(minor) >= first && Number(minor) <= last) return text;
  throw new InvalidArgumentError(
    "--nccl-version",
    text,
    `a version from 2.${first} to 2.${last}, those whose choices are known; without this option it is 2.${last}`,
  );
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
