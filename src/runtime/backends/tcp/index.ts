/**
 * Collectives over sockets: ranks are processes of one host or of several, or threads, that share nothing.
 * Refuses to know how ranks are started, and moves no device memory.
 * Start with tcp-kind.ts (outside), backend.ts (a rank), tcp-group.ts (its calls), then schedule.ts and algorithms.ts.
 */
export type { TcpOptions } from "./tcp-handle.ts";
