/**
 * What happens when ranks disagree, stay away, give up or are closed: an error on every rank that is concerned, in
 * time, with names; the group then refuses new work with the original cause, and the rest of the world goes on.
 */
import type { MismatchError, TimeoutError } from "../../core/index.ts";
import type { Communicator, Work } from "../../runtime/comm/index.ts";
import { equal, fails, finish, holds, ownGroup, SOON, turn, works } from "./expectations.ts";
import type { RankContext, SemanticCase } from "./rank-context.ts";

const f32 = (count: number) => new Float32Array(count).fill(1);
const SHORT = { timeoutMs: 10_000 } as const;
/** Deadline of a call that a rank is missing from. */
const MISSING_MS = 800;

type Call = (comm: Communicator) => Work<unknown>;
/** What rank 1 calls, and everybody else; and what the message must name of each side. */
type Disagreement = readonly [what: string, odd: Call, even: Call, names: readonly RegExp[]];

const DISAGREEMENTS: readonly Disagreement[] = [
  ["operation", (c) => c.broadcast(f32(8), SHORT), (c) => c.allReduce(f32(8), SHORT), [/all_?reduce/i, /broadcast/i]],
  ["dtype", (c) => c.allReduce(new Int32Array(8), SHORT), (c) => c.allReduce(f32(8), SHORT), [/f32/, /i32/]],
  ["count", (c) => c.allReduce(f32(9), SHORT), (c) => c.allReduce(f32(8), SHORT), [/\b8\b/, /\b9\b/]],
  [
    "large count",
    (c) => c.allReduce(f32(600_000), SHORT),
    (c) => c.allReduce(f32(500_000), SHORT),
    [/600_?000/, /500_?000/],
  ],
  [
    "root",
    (c) => c.broadcast(f32(8), { ...SHORT, root: 1 }),
    (c) => c.broadcast(f32(8), { ...SHORT, root: 2 }),
    [/root 1|root[:= ]+1/, /root 2|root[:= ]+2/],
  ],
  [
    "reduce operator",
    (c) => c.allReduce(f32(8), { ...SHORT, op: "max" }),
    (c) => c.allReduce(f32(8), { ...SHORT, op: "min" }),
    [/max/, /min/],
  ],
  [
    "premultiplied scalar",
    (c) => c.allReduce(f32(8), { ...SHORT, op: c.preMulSum(2) }),
    (c) => c.allReduce(f32(8), { ...SHORT, op: "sum" }),
    [/pre_?mul_?sum/i, /sum/],
  ],
  [
    "barrier against a collective",
    (c) => c.barrier(SHORT),
    (c) => c.allGather(f32(8), SHORT),
    [/barrier/, /all_?gather/i],
  ],
  [
    "counts of a variable collective",
    (c) => c.allGatherV(f32(2), { ...SHORT, counts: [3, 2, 3] }),
    (c) => c.allGatherV(f32(3), { ...SHORT, counts: [3, 3, 3] }),
    [/all_?gather_?v/i],
  ],
  [
    "gather against scatter",
    (c) => c.scatter(f32(3), { ...SHORT, root: 0 }),
    (c) => c.gather(f32(3), { ...SHORT, root: 0 }),
    [/scatter/, /gather/],
  ],
];

/** What a case is, but for what it does in a group of its own, which may fail: the world goes on afterwards. */
interface GroupCase extends Pick<SemanticCase, "name" | "ranks" | "needs" | "needsFeatures"> {
  readonly group: string;
}

const groupCase = (
  { group: label, ...about }: GroupCase,
  run: (context: RankContext, group: Communicator) => Promise<void>,
): SemanticCase => ({
  needs: ["split"],
  ...about,
  run: (context) => inOwnGroup(context, label, (group) => run(context, group)),
});

async function inOwnGroup(context: RankContext, label: string, run: (group: Communicator) => Promise<void>) {
  const group = await ownGroup(context, label);
  await run(group);
  await works(context, "the world afterwards", context.comm);
  await group.close().catch(() => {});
}

function isNamed(context: RankContext, error: Error | undefined, names: readonly RegExp[]): void {
  const said = error?.message ?? "";
  for (const name of names) holds(context, `the message names ${name}: ${said}`, name.test(said));
}

function mismatchCase([what, odd, even, names]: Disagreement): SemanticCase {
  const name = `ranks that disagree on the ${what} all learn both sides`;
  return groupCase({ name, ranks: 3, group: "mismatch" }, async (context, group) => {
    await works(context, "before", group);
    const began = Date.now();
    const error = await fails(context, what, ["MISMATCH"], () => finish(group, (group.rank === 1 ? odd : even)(group)));
    holds(context, "it took far less than the deadline", Date.now() - began < 9_000);
    if (error !== undefined) {
      isNamed(context, error, names);
      const sides = (error as MismatchError).sides;
      holds(
        context,
        "sides of rank 1 and of another",
        sides.some((s) => s.rank === 1) && sides.some((s) => s.rank !== 1),
      );
    }
    await fails(context, "new work afterwards", ["MISMATCH"], () => group.barrier(SHORT).wait());
  });
}

function missingCase(drive: "wait" | "await"): SemanticCase {
  return {
    name: `a deadline names the rank that is missing (${drive})`,
    ranks: 3,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "late");
      await group.barrier(SOON);
      // Rank 0's deadline ends the group for all: it calls when rank 2 has, however slow that is.
      const early = group.rank === 2 ? group.allReduce(f32(4), SOON) : undefined;
      await context.comm.barrier(SOON);
      if (group.rank !== 1) {
        const began = Date.now();
        const work = () => early ?? group.allReduce(f32(4), { timeoutMs: MISSING_MS });
        const error = await fails(context, "all-reduce without rank 1", ["TIMEOUT"], () =>
          drive === "wait" ? work().wait() : work(),
        );
        const ended = Date.now();
        if (group.rank === 0) {
          holds(context, `it took ${ended - began} ms, ${MISSING_MS} expected`, ended - began >= MISSING_MS - 50);
        }
        holds(context, `it took ${ended - began} ms, less than 8000 expected`, ended - began < 8_000);
        const ranks = (error as TimeoutError | undefined)?.ranks ?? [];
        const late = ranks.filter((r) => !r.arrived);
        equal(
          context,
          "missing",
          late.map((r) => r.rank),
          [1],
        );
        holds(
          context,
          `the last operation of rank 1 is named: ${error?.message}`,
          /barrier|all_?reduce/i.test(late[0]?.lastOp ?? ""),
        );
        await fails(context, "new work afterwards", ["TIMEOUT"], () => group.barrier(SHORT).wait());
      }
      await works(context, "the world afterwards", context.comm);
      if (group.rank === 1)
        await fails(context, "the late rank", ["TIMEOUT"], () => group.allReduce(f32(4), SHORT).wait());
      await group.close().catch(() => {});
    },
  };
}

export const FAILURE_CASES: readonly SemanticCase[] = [
  ...DISAGREEMENTS.map(mismatchCase),
  missingCase("wait"),
  missingCase("await"),
  {
    name: "wait({ timeoutMs }) is a deadline of its own",
    ranks: 2,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "own deadline");
      if (group.rank === 0) {
        const wait = () => group.barrier(SOON).wait({ timeoutMs: 200 });
        const error = await fails(context, "wait of 200 ms", ["TIMEOUT"], wait);
        const ranks = (error as TimeoutError | undefined)?.ranks ?? [];
        const come = ranks.filter(({ arrived }) => arrived).map(({ rank }) => rank);
        equal(context, "who has come, and of how many", [come, ranks.length], [[0], group.size]);
      }
      await works(context, "the world afterwards", context.comm);
      // What is pending would keep close() until its own deadline.
      group.abort("the case is over");
      await group.close().catch(() => {});
    },
  },
  {
    name: "a send and a receive of different sizes or dtypes fail on both sides",
    ranks: 2,
    needs: ["split", "send"],
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      const odd: readonly [string, (c: Communicator) => Work<unknown>, readonly RegExp[]][] = [
        ["4 elements for 8", (c) => c.recv(f32(8), 0, SHORT), [/\b4\b/, /\b8\b/]],
        ["f32 for i32", (c) => c.recv(new Int32Array(4), 0, SHORT), [/f32/, /i32/]],
        ["4 elements for 500,000", (c) => c.recv(f32(500_000), 0, SHORT), [/500_?000/]],
      ];
      for (const storage of ["array", "tensor"] as const) {
        for (const [what, recv, names] of odd) {
          const data = storage === "array" ? f32(4) : context.world.tensor("f32", [4]);
          await inOwnGroup(context, `pair ${storage} ${what}`, async (group) => {
            // A small send may be done before the receiver looks: then the next call says it.
            const attempt = async () => {
              if (group.rank === 1) return finish(group, recv(group));
              await finish(group, group.send(data, 1, SHORT));
              return group.barrier(SHORT);
            };
            isNamed(context, await fails(context, `${storage}: ${what}`, ["MISMATCH"], attempt), names);
          });
        }
      }
    },
  },
  {
    name: "an all-to-all whose counts do not fit fails on every rank and names the pair",
    ranks: 3,
    needs: ["split", "all_to_all_v"],
    async run(context) {
      for (const storage of ["array", "tensor"] as const) {
        await inOwnGroup(context, `counts ${storage}`, async (group) => {
          const data = () => (storage === "array" ? f32(6) : context.world.tensor("f32", [6]));
          // Rank 1 sends rank 2 three elements, and rank 2 expects two of it.
          const odd = group.rank === 1 ? { sendCounts: [1, 2, 3], recvCounts: [2, 2, 2] } : undefined;
          const counts = odd ?? { sendCounts: [2, 2, 2], recvCounts: group.rank === 0 ? [2, 1, 2] : [2, 2, 2] };
          const received = counts.recvCounts.reduce((a, b) => a + b, 0);
          const output = storage === "array" ? f32(received) : context.world.tensor("f32", [received]);
          const error = await fails(context, `${storage}: counts`, ["MISMATCH"], () =>
            finish(group, group.allToAllV(data(), { ...counts, output, ...SHORT })),
          );
          isNamed(context, error, [/rank 1/, /rank 2/, /\b3\b/, /\b2\b/]);
        });
      }
    },
  },
  {
    name: "what was sent arrives, also when the sender closes the group at once",
    ranks: 2,
    needs: ["split", "send"],
    needsFeatures: ["sendOutsideBatch"],
    async run(context) {
      for (const count of [4, 300_000]) {
        const group = await ownGroup(context, "leaving");
        if (group.rank === 0) {
          const work = group.send(f32(count), 1, SOON);
          await group.close();
          equal(context, "state of the send", work.state, "done");
          await context.comm.barrier(SOON);
        } else {
          for (let i = 0; i < 20; i++) await turn();
          const into = new Float32Array(count);
          await group.recv(into, 0, SOON);
          equal(context, "the last element", into[count - 1], 1);
          await context.comm.barrier(SOON);
          await group.close();
        }
      }
    },
  },
  groupCase(
    {
      name: "a receive that nobody answers times out and names the peer",
      ranks: 2,
      needs: ["split", "send"],
      needsFeatures: ["sendOutsideBatch"],
      group: "silent",
    },
    async (context, group) => {
      if (group.rank !== 0) return;
      const error = await fails(context, "recv", ["TIMEOUT"], () => group.recv(f32(4), 1, { timeoutMs: 250 }));
      holds(context, `rank 1 is named: ${error?.message}`, /\b1\b/.test(error?.message ?? ""));
    },
  ),
  groupCase(
    { name: "abort fails the pending work of every rank with its reason", ranks: 3, group: "aborted" },
    async (context, group) => {
      const pending = group.rank === 2 ? undefined : group.allReduce(f32(100), SOON);
      await context.comm.barrier(SOON);
      const began = Date.now();
      if (group.rank === 2) group.abort("enough of this");
      const error = await fails(context, "work", ["ABORTED"], () => pending ?? group.barrier(SHORT));
      holds(context, "long before any deadline", Date.now() - began < 7_000);
      holds(context, `the reason is there: ${error?.message}`, /enough of this/.test(error?.message ?? ""));
      await fails(context, "new work", ["ABORTED"], () => group.barrier(SHORT).wait());
    },
  ),
  groupCase({ name: "an AbortSignal ends a call", ranks: 2, group: "signal" }, async (context, group) => {
    if (group.rank === 0) {
      const controller = new AbortController();
      const work = group.allReduce(f32(4), { ...SOON, signal: controller.signal });
      setImmediate(() => controller.abort(new Error("the user left")));
      await fails(context, "the signalled call", ["ABORTED"], () => work);
      await fails(context, "a call with a signal that is aborted already", ["ABORTED"], () =>
        group.allReduce(f32(4), { signal: AbortSignal.abort("gone") }),
      );
    }
  }),
  groupCase(
    { name: "survivors shrink a group that failed", ranks: 4, needs: ["split", "shrink"], group: "shrinking" },
    async (context, group) => {
      if (group.rank !== 2) {
        await fails(context, "without rank 2", ["TIMEOUT"], () => group.barrier({ timeoutMs: 300 }));
        const smaller = await group.shrink([2]);
        equal(context, "size", smaller.size, 3);
        equal(context, "ranks", smaller.ranks, [0, 1, 3]);
        const sum = await smaller.allReduce(new Int32Array([group.rank]), SOON);
        equal(context, "sum", sum.data[0], 4);
        await smaller.close();
      }
    },
  ),
  {
    name: "a failure that nobody looked at is no unhandled rejection, and close() reports it",
    ranks: 2,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "unseen");
      let unhandled = 0;
      const count = () => {
        unhandled++;
      };
      process.on("unhandledRejection", count);
      const work = group.rank === 0 ? group.barrier({ timeoutMs: 150 }) : undefined;
      const until = Date.now() + 5_000;
      while (work !== undefined && work.state !== "failed" && Date.now() < until) await turn();
      await context.comm.barrier(SOON);
      await turn();
      process.off("unhandledRejection", count);
      equal(context, "unhandled rejections", unhandled, 0);
      if (group.rank === 0) {
        equal(context, "state", work?.state, "failed");
        await fails(context, "close()", ["TIMEOUT"], () => group.close());
      } else await group.close().catch(() => {});
      await works(context, "the world afterwards", context.comm);
    },
  },
  {
    name: "a closed group refuses work, and closing twice is fine",
    ranks: 2,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "closed");
      await works(context, "before", group);
      await group.close();
      await group.close();
      await fails(context, "work after close", ["CLOSED"], () => group.allReduce(f32(1), SHORT));
      await works(context, "the world afterwards", context.comm);
    },
  },
  {
    name: "close waits for work that is pending",
    ranks: 2,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "closing");
      const x = new Float32Array(100_000).fill(group.rank + 1);
      const work = group.allReduce(x, SOON);
      await group.close();
      equal(context, "state", work.state, "done");
      equal(context, "result", x[99_999], 3);
      await works(context, "the world afterwards", context.comm);
    },
  },
];
