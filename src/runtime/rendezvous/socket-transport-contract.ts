/** What carries connections between processes, as those who listen and connect see it: socket-transports.ts has TCP and TLS. A new one goes there. */
import type { Socket } from "node:net";
import type { GateListener, GateRules } from "./stranger-gate.ts";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface Listening {
  /** The real port. */
  readonly port: number;
  /** Listens no more, and drops those that have not proved themselves, for this reason. Others stay. */
  close(reason: string): void;
}

export interface SocketTransport {
  /**
   * Listens, and does not keep the process alive by it.
   * @param rules what strangers have to prove
   * @param listener gets those that have, and is told of those that the transport or its gate refused
   * @throws the system's error
   */
  listen(at: Address, rules: GateRules, listener: GateListener): Promise<Listening>;
  /**
   * Connects; over TCP the socket may still be connecting.
   * @throws the system's error; InvalidArgumentError where the peers do not agree on TLS, or on certificates
   */
  connect(to: Address, timeoutMs: number): Promise<Socket>;
}
