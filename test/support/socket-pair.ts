import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

/** Two sockets that are connected to each other over loopback. Neither reads before it is told to. */
export async function socketPair(): Promise<readonly [near: Socket, far: Socket]> {
  const server = createServer({ pauseOnConnect: true }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const accepted = once(server, "connection") as Promise<[Socket]>;
  const near = connect((server.address() as { port: number }).port, "127.0.0.1");
  const [[far]] = await Promise.all([accepted, once(near, "connect")]);
  server.close();
  return [near.pause(), far];
}
