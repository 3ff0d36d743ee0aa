/** All-reduces over more than two hosts: each column cuts its share of a piece, and gives every host one cut of it. */
import { afterEach, describe, expect, it } from "vitest";
import { AGREED, Members } from "../../../test/support/host-members.ts";
import { HostAddresses } from "../memory/index.ts";
import type { Carrier } from "./carrier.ts";
import { ColumnMessages } from "./column-messages.ts";
import { PIECE_BYTES, type ReduceHelper } from "./host-memory.ts";
import { allReducePieces } from "./piece-reductions.ts";
import { PieceRun } from "./piece-run.ts";

let all: Members | undefined;
afterEach(() => all?.close());

describe.skipIf(process.platform === "win32")("cuts of a column's share", () => {
  it("leave while the rest of the share is summed", () => {
    const members = new Members(["a", "a", "b", "b", "c", "c"]);
    all = members;
    const addresses = new HostAddresses();
    const sums: { rank: number; end: (isMade: boolean) => void }[] = [];
    const sent: { rank: number; to: number; bytes: number }[] = [];
    let running = 0;
    const helper: ReduceHelper = {
      reduce: (_memory, _job, _bytes, end) => sums.push({ rank: running, end }) > 0,
      finish: () => {},
      forget: () => {},
    };
    // The ranks of one host.
    const runs = members
      .group(PIECE_BYTES.large, helper)
      .slice(0, 2)
      .map((place, rank) => {
        const { layout, memory } = place;
        const span = addresses.span(members.array(rank, "i32", 2 ** 19, true));
        const carrier: Carrier = {
          send: (to, _slot, payload) => void sent.push({ rank, to, bytes: payload.length }),
          receive: () => {},
        };
        const call = { op: "all_reduce", dtype: "i32", redop: "sum", root: 0, size: 6, rank } as const;
        const messages = new ColumnMessages(carrier, layout);
        const buffers = { partBytes: 2 ** 21, input: span, output: span };
        const work = allReducePieces({ ...call, ...buffers, layout, memory, messages });
        return new PieceRun(place, work, { ...AGREED, done: () => expect.unreachable("nothing has come") });
      });
    for (const turn of [0, 1]) {
      for (const [rank, run] of runs.entries()) {
        running = rank;
        if (turn === 0) run.start();
        else run.advance();
      }
    }
    // Two pieces of 1 MiB, of which a rank has 512 KiB: a third for each host, its own last.
    const [first, second, third, ...rest] = sums.filter(({ rank }) => rank === 0);
    expect([rest.length, sent.length]).toEqual([3, 0]);
    const bytes = Math.ceil(2 ** 19 / 3 / 128) * 128;
    first?.end(true);
    expect(sent).toEqual([{ rank: 0, to: 2, bytes }]);
    second?.end(true);
    third?.end(true);
    expect(sent.slice(1)).toEqual([{ rank: 0, to: 4, bytes: 2 ** 19 - 2 * bytes }]);
    for (const run of runs) run.stop();
  });
});
