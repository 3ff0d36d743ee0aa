/**
 * TLS for sockets that need a descriptor: a thread of this process has the encrypted connections, by Node's own tls, and for each
 * of them one end of a pair of sockets; the other end is what the process's program reads and writes, as if it were the
 * connection. The thread goes on while the program's is blocked in `Work.wait()`.
 */
import { Socket } from "node:net";
import { Worker } from "node:worker_threads";
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { socketPair } from "../../foreign/native/index.ts";
import { afterRunning } from "../comm/index.ts";
import { Channel, type ChannelListener } from "./channel.ts";
import type { Address, Listening, SocketTransport } from "./socket-transport-contract.ts";
import type { GateListener, GateRules, ProvenPeer } from "./stranger-gate.ts";
import type { TlsIdentity } from "./tls-identity.ts";
import type { FromTunnel, ToTunnel, TunnelData } from "./tls-worker.ts";

/** How long what was written last may take to be sent when the process ends, ms. */
const EXIT_MS = 300;

/** Of the thread's heap, whose objects are small and soon done with: V8 would let 48 MiB of them wait for its collection. */
const YOUNG_MIB = 4;

interface Pending {
  readonly resolve: (value: never) => void;
  readonly reject: (error: Error) => void;
}

class Tunnel implements SocketTransport {
  readonly #worker: Worker;
  /** Number of connections whose last bytes have not been sent. */
  readonly #open = new Int32Array(new SharedArrayBuffer(4));
  /** Number of refusals that this thread has not heard of. */
  readonly #unheard = new Int32Array(new SharedArrayBuffer(4));
  readonly #pending = new Map<number, Pending>();
  readonly #listeners = new Map<number, GateListener>();
  readonly #sockets = new Set<Socket>();
  #nextId = 1;

  /** @param onFailed the thread has ended by an error: no later request may come */
  constructor(identity: TlsIdentity, onFailed: () => void) {
    const data: TunnelData = { identity, open: this.#open, unheard: this.#unheard };
    this.#worker = new Worker(new URL("./tls-worker.js", import.meta.url), {
      workerData: data,
      execArgv: [],
      resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MIB },
      stdout: false,
    });
    this.#worker.on("message", (message: FromTunnel) => this.#hear(message));
    this.#worker.on("error", (error) => {
      onFailed();
      // Nobody is left to send anything, which the end of the process would wait for.
      Atomics.store(this.#open, 0, 0);
      for (const { reject } of this.#pending.values()) reject(error);
      for (const socket of this.#sockets) socket.destroy(error);
      for (const listener of this.#listeners.values())
        listener.refused(`nobody comes any more: the thread that listened has failed: ${error.message}`);
    });
    this.#worker.unref();
    process.on("exit", () => {
      for (const socket of this.#sockets) socket.destroy();
      const until = performance.now() + EXIT_MS;
      for (let left = EXIT_MS; left > 0; left = until - performance.now()) {
        const open = Atomics.load(this.#open, 0);
        if (open <= 0) return;
        Atomics.wait(this.#open, 0, open, left);
      }
    });
  }

  async listen(at: Address, rules: GateRules, listener: GateListener): Promise<Listening> {
    const id = this.#nextId++;
    this.#listeners.set(id, listener);
    try {
      const port = await this.#ask<number>({ kind: "listen", id, rules, ...at });
      const close = () => {
        if (this.#listeners.delete(id)) this.#tell({ kind: "close", id });
      };
      return { port, close };
    } catch (error) {
      this.#listeners.delete(id);
      throw error;
    }
  }

  connect(to: Address, timeoutMs: number): Promise<Socket> {
    // Meanwhile this thread may look at nothing else, and its caller counts running time.
    const looks = afterRunning(timeoutMs, () => {}, true);
    const asked = this.#ask<Socket>({ kind: "connect", id: this.#nextId++, ...to, timeoutMs });
    return asked.finally(() => looks.cancel());
  }

  #tell(message: ToTunnel): void {
    this.#worker.postMessage(message);
  }

  #ask<T>(message: ToTunnel): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle = () => {
        this.#pending.delete(message.id);
        if (this.#pending.size === 0) this.#worker.unref();
      };
      this.#pending.set(message.id, {
        resolve: (value) => {
          settle();
          resolve(value);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      });
      this.#worker.ref();
      this.#tell(message);
    });
  }

  #hear(message: FromTunnel): void {
    if (message.kind === "listening") this.#pending.get(message.id)?.resolve(message.port as never);
    else if (message.kind === "refused") {
      Atomics.sub(this.#unheard, 0, 1);
      this.#listeners.get(message.id)?.refused(message.reason);
    } else if (message.kind === "failed") {
      const { reason, code } = message;
      const error =
        message.isTls === true
          ? new InvalidArgumentError(
              "TLS",
              described(`refused: ${reason}`),
              "peers that all use TLS, with certificates that the same CA has signed",
            )
          : Object.assign(new Error(reason), code === undefined ? {} : { code });
      this.#pending.get(message.id)?.reject(error);
    } else this.#pair(message);
  }

  /** Gives a connection's plain end to whoever waits for it. */
  #pair(message: Extract<FromTunnel, { kind: "ready" }>): void {
    const { id, stream, peer, remoteAddress, remotePort, localAddress } = message;
    const listener = peer === undefined ? undefined : this.#listeners.get(id);
    const caller = peer === undefined ? this.#pending.get(id) : undefined;
    let ends: readonly [number, number];
    try {
      if (listener === undefined && caller === undefined) throw new Error("nobody waits for it any more");
      ends = socketPair();
    } catch (error) {
      this.#tell({ kind: "drop", id: stream });
      listener?.refused((error as Error).message);
      caller?.reject(error as Error);
      return;
    }
    const socket = new Socket({ fd: ends[0], readable: true, writable: true });
    // Of the connection that it stands for: the pair itself has none.
    for (const [name, value] of Object.entries({ remoteAddress, remotePort, localAddress })) {
      Object.defineProperty(socket, name, { value });
    }
    this.#sockets.add(socket);
    socket.once("close", () => this.#sockets.delete(socket));
    Atomics.add(this.#open, 0, 1);
    this.#tell({ kind: "pair", id: stream, fd: ends[1] });
    caller?.resolve(socket as Socket & never);
    if (listener !== undefined && peer !== undefined) enter(socket, peer, listener);
  }
}

/** Lets a peer in that has proved itself in the other thread. */
function enter(socket: Socket, peer: ProvenPeer, listener: GateListener): void {
  let inside: ChannelListener | undefined;
  const channel = new Channel(socket, peer.name, {
    message: (message) => inside?.message(message),
    end: (error) => inside?.end(error),
  });
  try {
    inside = listener.proven(channel, peer);
  } catch (error) {
    listener.refused((error as Error).message);
    channel.destroy();
  }
}

const tunnels = new Map<string, Tunnel>();

/** The tunnel of a process for one identity. */
export function tunnelOf(identity: TlsIdentity): SocketTransport {
  const name = JSON.stringify(identity);
  const tunnel = tunnels.get(name) ?? new Tunnel(identity, () => tunnels.delete(name));
  tunnels.set(name, tunnel);
  return tunnel;
}
