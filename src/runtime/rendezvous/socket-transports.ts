/**
 * What carries connections between processes: TCP as it is, or TLS over it. Both give sockets with a descriptor, because a rank
 * that waits without an event loop reads and writes by the C library's calls; TLS has one of a pair whose other end a thread of
 * this process encrypts (tls-tunnel.ts).
 */
import { connect, createServer } from "node:net";
import type { SocketTransport } from "./socket-transport-contract.ts";
import { StrangerGate } from "./stranger-gate.ts";
import type { TlsIdentity } from "./tls-identity.ts";
import { tunnelOf } from "./tls-tunnel.ts";

const PLAIN: SocketTransport = {
  listen: ({ host, port }, rules, listener) =>
    new Promise((resolve, reject) => {
      const gate = new StrangerGate(rules, listener);
      const server = createServer((socket) => gate.greet(socket));
      server.unref();
      server.once("error", reject);
      server.listen({ host, port }, () => {
        server.off("error", reject);
        // A client that resets is no reason to end.
        server.on("error", () => {});
        const address = server.address();
        resolve({
          port: typeof address === "object" && address !== null ? address.port : 0,
          close: (reason) => {
            server.close();
            gate.close(reason);
          },
        });
      });
    }),
  connect: async (to) => connect(to),
};

export function transportFor(tls: TlsIdentity | undefined): SocketTransport {
  return tls === undefined ? PLAIN : tunnelOf(tls);
}
