/**
 * Ranks that share hosts: which ranks are on one host, and how a group lies on its hosts.
 * It opens no socket and calls no engine: how hosts talk to each other is a backend's.
 * Start reading at host-identity.ts and host-layout.ts.
 */
export { HOST_MARK_BYTES, hostMark, type LaunchedAt } from "./host-identity.ts";
export { type HostLayout, layoutOf, layoutText, ownRow } from "./host-layout.ts";
