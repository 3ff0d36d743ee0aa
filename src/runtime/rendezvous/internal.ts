/**
 * The rendezvous's second door, for what every rank loads: where another launcher put it, and the rules of values.
 * It loads no sockets.
 * Start reading at launcher-environments.ts.
 */
export { checkValue, describeKey, type WorldFailure } from "./bootstrap-value.ts";
export { foreignPlace } from "./launcher-environments.ts";
export { rendezvousSecret, SECRET_VARIABLES } from "./secret.ts";
export { type Asker, isStoreAsk, type StoreAnswer, type StoreAsk, ValueStore } from "./value-store.ts";
export { StoreClient, storeOver, type WorldStore } from "./value-store-client.ts";
