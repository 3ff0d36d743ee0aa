/** Two ends of a connection inside this process, by socketpair(2): what one thread writes, another one reads. Linux and macOS. */
import { constants } from "node:os";
import { getSystemErrorName } from "node:util";
import { UnavailableError } from "../../core/index.ts";
import { koffi } from "./koffi.ts";

const AF_UNIX = 1;
const SOCK_STREAM = 1;
/** Programs that this process starts do not get them. */
const SOCK_CLOEXEC = process.platform === "linux" ? 0o2000000 : 0;

type SocketPair = (domain: number, type: number, protocol: number, pair: Int32Array) => number;
/** Made once: each binding takes some KiB until it is collected. */
let bound: SocketPair | undefined;

/** @returns two descriptors, which are the caller's to close @throws UnavailableError without FFI, or out of descriptors */
export function socketPair(): readonly [number, number] {
  const ffi = koffi();
  if (process.platform !== "linux" && process.platform !== "darwin") {
    throw new UnavailableError("socketpair(2)", `this is ${process.platform}`, "Use Linux or macOS.");
  }
  const pair = new Int32Array(2);
  bound ??= ffi.load(null).func("socketpair", "int", ["int", "int", "int", "void *"]) as SocketPair;
  if (bound(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) !== 0) {
    const errno = ffi.errno();
    const how = errno === constants.errno.EMFILE ? "Raise the limit of open files: ulimit -n 65536." : "See errno(3).";
    throw new UnavailableError("a pair of sockets", getSystemErrorName(-errno), how);
  }
  return [pair[0] ?? -1, pair[1] ?? -1];
}
