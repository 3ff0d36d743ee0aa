/** Finds a port of 127.0.0.1 that nobody listens on. No two calls of one process give the same. */
export function freePort(): Promise<number>;
