/**
 * Ranks that stay up and run the cases that a benchmark tells them, one at a time: so contenders alternate within one run,
 * none pays for its start in a figure, and those that wait for their turn use no processor time (they read a socket).
 * Each rank connects to the benchmark's socket, says `{ who, rank, port }`, takes lines `{ op, bytes, warm, iterations }`, and
 * answers `{ us, cpuUs }`, and perhaps `waits`: per call, what the clock and its own process took, and how often it gave up its core
 * of itself.
 */
import { createServer } from "node:net";
import { createInterface } from "node:readline";

/** Listens at `path` for the ranks of all contenders. @returns what waits for a contender's ranks, and `close` */
export async function serveRanks(path) {
  const known = new Map();
  const groupOf = (who) => {
    if (!known.has(who)) known.set(who, { ranks: new Map(), joined: () => {} });
    return known.get(who);
  };
  const server = createServer((socket) => {
    let answer;
    let lost;
    let group;
    socket.on("error", () => {});
    socket.on("close", () => lost?.(new Error("a rank is gone")));
    createInterface({ input: socket }).on("line", (line) => {
      const said = JSON.parse(line);
      if (group === undefined) {
        group = groupOf(said.who);
        const ask = (value) =>
          new Promise((resolve, reject) => {
            answer = resolve;
            lost = reject;
            socket.write(`${JSON.stringify(value)}\n`);
          });
        group.ranks.set(said.rank, { ask, end: () => socket.end(), port: said.port });
        group.joined();
      } else answer?.(said);
    });
  }).listen(path);
  await new Promise((resolve) => server.once("listening", resolve));
  return {
    /** Waits until all ranks of a contender are here. */
    async meet(who, count) {
      const group = groupOf(who);
      await new Promise((resolve) => {
        group.joined = () => group.ranks.size === count && resolve();
        group.joined();
      });
      return {
        /** Where the ranks listen, of those that do. */
        ports: Array.from({ length: count }, (_, rank) => group.ranks.get(rank)?.port),
        /** Runs a case on all ranks. @returns the slowest rank's time of a call, and the processor time and waits of all together */
        async run(value) {
          const all = await Promise.all([...group.ranks.values()].map(({ ask }) => ask(value)));
          const sum = (key) => all.reduce((total, one) => total + (one[key] ?? 0), 0);
          return { us: Math.max(...all.map(({ us }) => us)), cpuUs: sum("cpuUs"), waits: sum("waits") };
        },
        end() {
          for (const { end } of group.ranks.values()) end();
          known.delete(who);
        },
      };
    },
    close: () => server.close(),
  };
}
