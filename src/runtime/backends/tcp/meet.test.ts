/** How the ranks of a world connect to each other: the callee of a pair says over how many connections. */
import { expect, it } from "vitest";
import { meetings, refusalsOf } from "../../../../test/support/tcp-meetings.ts";

it.skipIf(process.platform === "win32")("gives a pair as many connections as the rank that is called has", async () => {
  const all = await Promise.all(
    meetings(
      [3, 2, 1].map((connections) => ({ connections })),
      60_000,
    ),
  );
  try {
    const counts = all.map((peers) => peers.map((peer) => peer?.sockets.filter((one) => one !== undefined).length));
    expect(counts).toEqual([
      [undefined, 3, 3],
      [3, undefined, 2],
      [3, 2, undefined],
    ]);
  } finally {
    for (const { socket } of all.flatMap((peers) => peers.flatMap((peer) => peer?.sockets ?? []))) socket.destroy();
  }
});

it.skipIf(process.platform === "win32")(
  "refuses a rank whose checksum option differs, and names both values",
  async () => {
    const [listener, caller] = await refusalsOf([{ checksum: "on" }, { checksum: "off" }]);
    const why = /checksum is "on" on rank 0 and "off" on rank 1: give all ranks the same/;
    expect(caller?.message).toMatch(why);
    expect(String(listener?.cause)).toMatch(why);
  },
);
