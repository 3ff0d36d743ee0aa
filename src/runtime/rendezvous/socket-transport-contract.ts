/** What carries connections between processes, as those who listen and connect see it: socket-transports.ts has TCP and TLS. A new one goes there. */
import type { Socket } from "node:net";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface Listening {
  /** The real port. */
  readonly port: number;
  /** Listens no more. Connections that came stay. */
  close(): void;
}

export interface SocketTransport {
  /**
   * Listens, and does not keep the process alive by it.
   * @param take gets each connection
   * @param refused is told of those that the transport itself refused
   * @throws the system's error
   */
  listen(at: Address, take: (socket: Socket) => void, refused: (reason: string) => void): Promise<Listening>;
  /**
   * Connects; over TCP the socket may still be connecting.
   * @throws the system's error; InvalidArgumentError where the peers do not agree on TLS, or on certificates
   */
  connect(to: Address, timeoutMs: number): Promise<Socket>;
}
