/**
 * What bare sockets carry here: `node socket-ring.mjs RANK SIZE PATH` connects each process to the next by one connection,
 * and all send to their next and receive from their previous at the same time, with the system calls that the tcp backend
 * uses and nothing else: no frames, no reduction. A served contender (served-ranks.mjs); a call moves `bytes` per rank: again
 * and again the same block, which stays in the cache, or, with `isWhole`, all of memory as large as that.
 */
import { connect, createServer } from "node:net";
import { createInterface } from "node:readline";
import { descriptorOf, POLL_IN, POLL_OUT, socketCalls, WOULD_BLOCK } from "../../dist/foreign/native/index.js";

const [rank, size, path] = [Number(process.argv[2]), Number(process.argv[3]), process.argv[4]];
const calls = socketCalls();
const BLOCK = 2 ** 20;
const buffersOf = (bytes) => [new Uint8Array(bytes).fill(1), new Uint8Array(bytes).fill(1)];
const block = buffersOf(BLOCK);
let whole = block;

/** At most a block of what is left, where the buffer has it. */
function part(buffer, done, left) {
  const at = done % buffer.length;
  return buffer.subarray(at, at + Math.min(BLOCK, left));
}

/** Sends and receives `bytes`, as the kernel takes and has them. */
function exchange(send, receive, bytes, [from, into]) {
  let [toSend, toReceive] = [bytes, bytes];
  const table = new Int32Array(4);
  while (toSend > 0 || toReceive > 0) {
    const sent = toSend > 0 ? calls.send(send, part(from, bytes - toSend, toSend), false) : WOULD_BLOCK;
    if (sent > 0) toSend -= sent;
    const got = toReceive > 0 ? calls.receive(receive, part(into, bytes - toReceive, toReceive)) : WOULD_BLOCK;
    if (got > 0) toReceive -= got;
    if (got === 0) throw new Error("the connection has ended");
    if (sent > 0 || got > 0) continue;
    table.set([send, toSend > 0 ? POLL_OUT : 0, receive, toReceive > 0 ? POLL_IN : 0]);
    calls.poll(table, 2, 100);
  }
}

let previous;
const server = createServer({ pauseOnConnect: true }, (socket) => {
  previous = socket.setNoDelay(true);
}).listen(0, "127.0.0.1");
await new Promise((resolve) => server.once("listening", resolve));
const parent = connect(path);
const say = (value) => parent.write(`${JSON.stringify(value)}\n`);
say({ who: "sockets", rank, port: server.address().port });
let next;
for await (const line of createInterface({ input: parent })) {
  const { ports, bytes, isWhole, warm, iterations } = JSON.parse(line);
  if (ports !== undefined) {
    next = connect({ port: ports[(rank + 1) % size], host: "127.0.0.1", noDelay: true });
    await new Promise((resolve) => next.once("connect", resolve));
    next.pause();
    // As the backend does within a host: the base is not to be a slower kind of connection.
    calls.unpaced(descriptorOf(next));
    say({ us: 0, cpuUs: 0 });
    continue;
  }
  const [to, of] = [descriptorOf(next), descriptorOf(previous)];
  if (isWhole && whole[0].length !== bytes) whole = buffersOf(bytes);
  const buffers = isWhole ? whole : block;
  for (let i = 0; i < warm; i++) exchange(to, of, bytes, buffers);
  const before = process.cpuUsage();
  const began = performance.now();
  for (let i = 0; i < iterations; i++) exchange(to, of, bytes, buffers);
  const us = ((performance.now() - began) * 1000) / iterations;
  const { user, system } = process.cpuUsage(before);
  say({ us, cpuUs: (user + system) / iterations });
}
process.exit(0);
