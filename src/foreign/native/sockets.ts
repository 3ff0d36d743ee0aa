/**
 * Node's sockets, driven by the C library's own calls: send(2), recv(2) and poll(2) on descriptors that do not block.
 * A thread that blocks in `Work.wait()` has no event loop to read for it, and a small message takes a third of the time
 * that it takes through Node's streams. Linux and macOS.
 */
import type { Socket } from "node:net";
import { constants } from "node:os";
import { UnavailableError } from "../../core/index.ts";
import { koffi } from "./koffi.ts";

/** More data follows at once: the kernel may put it into one packet. Linux only. */
const MSG_MORE = process.platform === "linux" ? 0x8000 : 0;
/** A peer that has gone gives an error code instead of a signal. Linux; on macOS Node sees to it. */
const MSG_NOSIGNAL = process.platform === "linux" ? 0x4000 : 0;

/** For descriptors that may block, too. */
const MSG_DONTWAIT = process.platform === "linux" ? 0x40 : 0x80;

export const POLL_IN = 1;
export const POLL_OUT = 4;
/** POLLERR, POLLHUP, POLLNVAL. */
export const POLL_BROKEN = 8 | 16 | 32;

/** Nothing can be read or written now. */
export const WOULD_BLOCK = -constants.errno.EAGAIN;

/** Linux: SIOCOUTQ of ioctl(2). macOS: SOL_SOCKET, SO_NWRITE of getsockopt(2). */
const OUT_QUEUE = 0x5411;
const UNSENT = { level: 0xffff, option: 0x1024 } as const;

/** Linux: IPPROTO_TCP, TCP_CONGESTION. */
const CONGESTION = { level: 6, option: 13 } as const;

export interface SocketCalls {
  /** Writes what the kernel takes. @returns the number of bytes, `WOULD_BLOCK`, or another error's number, negative */
  send(fd: number, bytes: Uint8Array, more: boolean): number;
  /** `send` of bytes at an address, which another thread's memory may have. */
  sendAt(fd: number, address: number, bytes: number, more: boolean): number;
  /** Reads what is there. @returns the number of bytes, 0 at the end, `WOULD_BLOCK`, or another error's number, negative */
  receive(fd: number, bytes: Uint8Array): number;
  /**
   * Waits until one of the first `count` descriptors is ready.
   * @param table pairs of words: a descriptor, then the events asked for (low half) and those that are ready (high half)
   * @returns how many are ready
   */
  poll(table: Int32Array, count: number, timeoutMs: number): number;
  /** Counts bytes that were written and that the other end's system does not have yet; 0 where this cannot be known. */
  unacknowledged(fd: number): number;
  /** Closes a descriptor that no object of Node owns. */
  close(fd: number): void;
  /**
   * Has the kernel send as fast as the other end takes it, for a connection within the host, where nothing can be
   * congested. Some systems' congestion control paces what it sends by a timer (BBR), which costs a third of loopback's
   * bandwidth. @returns whether it does so now: elsewhere, or where it may not, the system's own stays
   */
  unpaced(fd: number): boolean;
}

let bound: SocketCalls | undefined;

/** Binds the calls. @throws UnavailableError without FFI, or on other systems */
export function socketCalls(): SocketCalls {
  if (bound !== undefined) return bound;
  if (process.platform !== "linux" && process.platform !== "darwin") {
    throw new UnavailableError("the C library's sockets", `this is ${process.platform}`, "Use ranks as threads.");
  }
  const ffi = koffi();
  const library = ffi.load(null);
  const send = library.func("send", "intptr_t", ["int", "void *", "size_t", "int"]);
  const sendAt = library.func("send", "intptr_t", ["int", "intptr_t", "size_t", "int"]);
  const recv = library.func("recv", "intptr_t", ["int", "void *", "size_t", "int"]);
  const poll = library.func("poll", "int", ["void *", "unsigned long", "int"]);
  const close = library.func("close", "int", ["int"]);
  const setsockopt = library.func("setsockopt", "int", ["int", "int", "int", "void *", "unsigned int"]);
  const count = new Int32Array(1);
  const countSize = Uint32Array.of(count.byteLength);
  const outQueue =
    process.platform === "linux"
      ? library.func("ioctl", "int", ["int", "unsigned long", "void *"])
      : library.func("getsockopt", "int", ["int", "int", "int", "void *", "void *"]);
  const countUnsent = (fd: number) =>
    process.platform === "linux"
      ? outQueue(fd, OUT_QUEUE, count)
      : outQueue(fd, UNSENT.level, UNSENT.option, count, countSize);
  const SEND = MSG_NOSIGNAL | MSG_DONTWAIT;
  const reno = Buffer.from("reno");
  const { EINTR } = constants.errno;
  const again = (call: () => number): number => {
    for (;;) {
      const result = call();
      if (result >= 0) return result;
      const errno = ffi.errno();
      if (errno !== EINTR) return -errno;
    }
  };
  bound = {
    send: (fd, bytes, more) => again(() => send(fd, bytes, bytes.length, SEND | (more ? MSG_MORE : 0))),
    sendAt: (fd, address, bytes, more) => again(() => sendAt(fd, address, bytes, SEND | (more ? MSG_MORE : 0))),
    receive: (fd, bytes) => again(() => recv(fd, bytes, bytes.length, MSG_DONTWAIT)),
    poll: (table, count, timeoutMs) => Math.max(0, poll(table, count, timeoutMs)),
    unacknowledged: (fd) => (countUnsent(fd) === 0 ? (count[0] as number) : 0),
    close: (fd) => void close(fd),
    unpaced: (fd) =>
      process.platform === "linux" && setsockopt(fd, CONGESTION.level, CONGESTION.option, reno, reno.length) === 0,
  };
  return bound;
}

/** The descriptor of a connected socket; `undefined` where Node does not expose it. The socket owns it: close the socket. */
export function descriptorOf(socket: Socket): number | undefined {
  const { fd } = (socket as Socket & { readonly _handle?: { readonly fd?: number } | null })._handle ?? {};
  return fd === undefined || fd < 0 ? undefined : fd;
}
