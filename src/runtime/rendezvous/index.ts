/**
 * How processes that do not share memory meet: an authenticated channel, the handshake, the store and its client.
 * It reads where another launcher put a process, but joins no world: that is runtime/world's.
 * Start reading at rendezvous-store.ts (the listening side) and tcp-bootstrap.ts (a rank's side).
 */
export type { WorldFailure } from "./bootstrap-value.ts";
export { Channel } from "./channel.ts";
export { signed, verifiedText } from "./frame-mac.ts";
export type { Claims } from "./handshake.ts";
export { readLastWords } from "./last-words.ts";
export { checkOneHost, type ForeignPlace, parseAddress, rendezvousAddress } from "./launcher-environments.ts";
export { nodePlace, nodeRendezvous } from "./node-place.ts";
export { type Introduction, knock, PeerDoor, type PeerSocket } from "./peer-connections.ts";
export { RendezvousStore } from "./rendezvous-store.ts";
export { rendezvousSecret, SECRET_VARIABLES } from "./secret.ts";
export { TcpBootstrap } from "./tcp-bootstrap.ts";
export {
  type TlsFiles,
  type TlsIdentity,
  tlsFiles,
  tlsFromEnvironment,
  tlsIdentity,
  tlsVariables,
} from "./tls-identity.ts";
export { type Asker, isStoreAsk, type StoreAnswer, type StoreAsk, ValueStore } from "./value-store.ts";
export { StoreClient, type StoreOptions, storeOver, type WorldStore } from "./value-store-client.ts";
