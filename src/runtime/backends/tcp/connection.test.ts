/** The end of a connection to a rank: what it said before it ended is heard first. */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { expect, it } from "vitest";
import { socketCalls } from "../../../foreign/native/index.ts";
import { Connection, type ConnectionListener } from "./connection.ts";
import { HEAD_BYTES, KIND, writeHead } from "./frame.ts";

it.skipIf(process.platform === "win32")(
  "reads what a peer that is gone has said, though it cannot be written to",
  async () => {
    const calls = socketCalls();
    const server = createServer({ pauseOnConnect: true }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const far = connect((server.address() as { port: number }).port, "127.0.0.1");
    const [near] = (await once(server, "connection")) as [Socket];
    const heard: string[] = [];
    const listener: ConnectionListener = {
      begin: ({ bytes }) => new Uint8Array(bytes),
      end: ({ kind }) => void heard.push(`frame ${kind}`),
      over: (error) => void heard.push(`over: ${error?.message}`),
    };
    const connection = new Connection(near, { peer: "rank 1", calls, listener, hasSums: false });
    const frame = new Uint8Array(HEAD_BYTES);
    const name = { group: { low: 1, high: 2 }, lane: 0, seq: 3, slot: 4 } as const;
    writeHead(new Int32Array(frame.buffer), 0, KIND.close, name, { call: 0, count: 0, hash: 0 }, 0, 0, 0, 0);
    await new Promise<void>((resolve) => far.write(frame, () => resolve()));
    far.resetAndDestroy();
    await once(far, "close");
    // The first meets the reset, those after it a connection that is closed.
    for (let i = 0; i < 3; i++) connection.write(frame, undefined);
    expect(heard).toEqual([]);
    for (let i = 0; i < 3; i++) connection.receive();
    expect(heard).toEqual([
      `frame ${KIND.close}`,
      expect.stringMatching(/^over: the connection broke: E(PIPE|CONNRESET)$/),
    ]);
    server.close();
  },
);
