/** The echo backend as the world knows it. */
import {
  type BackendKind,
  FLIGHT_SCHEMA_VERSION,
  type HostHandle,
  isDuration,
} from "../../../src/runtime/comm/index.ts";

export interface EchoOptions {
  /** Default deadline; nothing here waits. */
  readonly timeoutMs?: number;
}

export const ECHO_KIND: BackendKind<HostHandle, EchoOptions> = {
  name: "echo",
  options: { timeoutMs: isDuration },
  isolations: ["thread", "process"],
  maxRanks: 1,
  usesDevices: false,
  availableRanks: () => 1,
  createHost: ({ ranks, generation }) => ({ ranks, generation }),
  releaseHost: () => {},
  attach: async (host) => new (await import("./echo-backend.ts")).EchoBackend(host),
  fail: () => {},
  bury: () => {},
  readFlight: ({ ranks, generation }) => ({
    schemaVersion: FLIGHT_SCHEMA_VERSION,
    backend: "echo",
    generation,
    worldSize: ranks,
    host: "",
    pid: process.pid,
    groups: [],
    ranks: [],
  }),
  libraries: async () => [],
};
