/** Which versions of Node chorale supports, and what the doctor says of the one that runs. */
import type { Finding } from "./finding.ts";

/** Majors with long-term support: the first release that works, and the end of the major's life (nodejs.org/en/about/previous-releases). */
const SUPPORTED = [
  { major: 20, from: "20.19.0", endOfLife: "2026-04-30" },
  { major: 22, from: "22.12.0", endOfLife: "2027-04-30" },
  { major: 24, from: "24.0.0", endOfLife: "2028-04-30" },
  { major: 26, from: "26.0.0", endOfLife: "2029-04-30" },
] as const;
const NEWEST = SUPPORTED[SUPPORTED.length - 1] ?? SUPPORTED[0];

/** What package.json's `engines.node` says: each supported major, and whatever comes after the newest. */
export const SUPPORTED_NODE = SUPPORTED.map((one) => (one === NEWEST ? `>=${one.from}` : `^${one.from}`)).join(" || ");

const ACCEPTED = `Node ${SUPPORTED.map(({ from }) => from.replace(/(\.0)+$/, "")).join(", ")} or newer`;

/** Judges a version of Node, such as `24.21.0`. `today` is an ISO date. */
export function judgeNode(version: string, today: string): Finding[] {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const known = SUPPORTED.find((one) => one.major === major);
  const firstMinor = Number(known?.from.split(".")[1] ?? 0);
  if (known === undefined ? major <= NEWEST.major : minor < firstMinor) {
    return [
      {
        code: "NODE_UNSUPPORTED",
        severity: "error",
        message: `Node ${version} is not supported.`,
        mend: `Use ${ACCEPTED}; releases with an odd number are not tested.`,
      },
    ];
  }
  if (known === undefined || today <= known.endOfLife) return [];
  return [
    {
      code: "NODE_END_OF_LIFE",
      severity: "info",
      message: `Node ${version} works, but Node ${major} has had no security fixes since ${known.endOfLife}.`,
      mend: `Update to Node ${SUPPORTED.find(({ endOfLife }) => endOfLife >= today)?.major ?? NEWEST.major} or newer.`,
    },
  ];
}
