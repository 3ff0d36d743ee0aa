/**
 * ncclConfig_t. One 96-byte buffer serves every version from 2.14: the library copies min(config.size, its own size)
 * and resets to its default every field newer than config.version (src/init.cc). Unset integers are INT_MIN and
 * pointers null: zero is a real value (blocking 0 means non-blocking).
 */
import { InvalidArgumentError } from "../../../core/index.ts";

const SIZE_BYTES = 96;
const MAGIC = 0xcafebeef;
const UNSET = -0x80000000;
/** The newest header whose fields this layout has. */
const NEWEST_KNOWN = 23007;

const INTEGER_FIELDS = {
  blocking: 16,
  cgaClusterSize: 20,
  minCtas: 24,
  maxCtas: 28,
  splitShare: 40,
  trafficClass: 44,
  collnetEnable: 56,
  ctaPolicy: 60,
  shrinkShare: 64,
  nvlsCtas: 68,
  numChannelsPerNetPeer: 72,
  nvlinkCentricSched: 76,
  graphUsageMode: 80,
  numRmaCtx: 84,
  maxP2pPeers: 88,
  graphStreamOrdering: 92,
} as const;
const POINTER_FIELDS = [32, 48] as const;

/** Options of a communicator, by NCCL's names; what is absent keeps NCCL's default. */
export type NcclConfig = { readonly [F in Exclude<keyof typeof INTEGER_FIELDS, "blocking">]?: number };

/** Checks a configuration before there is an NCCL. @throws InvalidArgumentError as `encodeConfig` */
export function checkNcclConfig(config: NcclConfig): void {
  encodeConfig(config, NEWEST_KNOWN, true);
}

/**
 * Lays out a configuration.
 * @param versionCode what ncclGetVersion answered
 * @param blocking whether NCCL's host calls return only when they are done
 * @throws InvalidArgumentError for an unknown field, a value that is not a 32-bit integer, or minCtas > maxCtas
 */
export function encodeConfig(config: NcclConfig, versionCode: number, blocking: boolean): Uint8Array {
  const bytes = new Uint8Array(SIZE_BYTES);
  const view = new DataView(bytes.buffer);
  view.setBigUint64(0, BigInt(SIZE_BYTES), true);
  view.setUint32(8, MAGIC, true);
  view.setUint32(12, Math.min(versionCode, NEWEST_KNOWN), true);
  for (const offset of Object.values(INTEGER_FIELDS)) view.setInt32(offset, UNSET, true);
  for (const offset of POINTER_FIELDS) view.setBigUint64(offset, 0n, true);
  view.setInt32(INTEGER_FIELDS.blocking, blocking ? 1 : 0, true);
  for (const [field, value] of Object.entries(config)) {
    const offset = field === "blocking" ? undefined : INTEGER_FIELDS[field as keyof NcclConfig];
    if (offset === undefined) {
      throw new InvalidArgumentError(
        "config",
        field,
        `one of ${Object.keys(INTEGER_FIELDS)
          .filter((name) => name !== "blocking")
          .join(", ")}`,
      );
    }
    if (!Number.isInteger(value) || value <= UNSET || value > 0x7fffffff) {
      throw new InvalidArgumentError(`config.${field}`, value, "a 32-bit integer");
    }
    view.setInt32(offset, value, true);
  }
  if (config.minCtas !== undefined && config.maxCtas !== undefined && config.minCtas > config.maxCtas) {
    throw new InvalidArgumentError("config.minCtas", config.minCtas, `at most maxCtas, ${config.maxCtas}`);
  }
  return bytes;
}
