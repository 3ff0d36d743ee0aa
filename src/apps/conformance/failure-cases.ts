/**
 * What happens when ranks disagree, stay away, give up or are closed: an error on every rank that is concerned, in
 * time, with names; the group then refuses new work with the original cause, and the rest of the world goes on.
 */
import type { MismatchError, TimeoutError } from "../../core/index.ts";
import type { Communicator, Work } from "../../runtime/comm/index.ts";
import { equal, fails, finish, holds, ownGroup, SOON, turn, works } from "./expectations.ts";
import type { SemanticCase } from "./rank-context.ts";

const f32 = (count: number) => new Float32Array(count).fill(1);
const SHORT = { timeoutMs: 6_000 } as const;
/** Deadline of a call that a rank is missing from: the ranks that make it do so well within it of each other. */
const MISSING_MS = 800;

interface Disagreement {
  readonly what: string;
  /** What rank 1 calls; everybody else makes the other call. */
  readonly odd: (comm: Communicator) => Work<unknown>;
  readonly even: (comm: Communicator) => Work<unknown>;
  /** What the message must name of each side. */
  readonly names: readonly RegExp[];
}

const DISAGREEMENTS: readonly Disagreement[] = [
  {
    what: "operation",
    odd: (c) => c.broadcast(f32(8), SHORT),
    even: (c) => c.allReduce(f32(8), SHORT),
    names: [/all_?reduce/i, /broadcast/i],
  },
  {
    what: "dtype",
    odd: (c) => c.allReduce(new Int32Array(8), SHORT),
    even: (c) => c.allReduce(f32(8), SHORT),
    names: [/f32/, /i32/],
  },
  {
    what: "count",
    odd: (c) => c.allReduce(f32(9), SHORT),
    even: (c) => c.allReduce(f32(8), SHORT),
    names: [/\b8\b/, /\b9\b/],
  },
  {
    what: "large count",
    odd: (c) => c.allReduce(f32(600_000), SHORT),
    even: (c) => c.allReduce(f32(500_000), SHORT),
    names: [/600_?000/, /500_?000/],
  },
  {
    what: "root",
    odd: (c) => c.broadcast(f32(8), { ...SHORT, root: 1 }),
    even: (c) => c.broadcast(f32(8), { ...SHORT, root: 2 }),
    names: [/root 1|root[:= ]+1/, /root 2|root[:= ]+2/],
  },
  {
    what: "reduce operator",
    odd: (c) => c.allReduce(f32(8), { ...SHORT, op: "max" }),
    even: (c) => c.allReduce(f32(8), { ...SHORT, op: "min" }),
    names: [/max/, /min/],
  },
  {
    what: "premultiplied scalar",
    odd: (c) => c.allReduce(f32(8), { ...SHORT, op: c.preMulSum(2) }),
    even: (c) => c.allReduce(f32(8), { ...SHORT, op: "sum" }),
    names: [/pre_?mul_?sum/i, /sum/],
  },
  {
    what: "barrier against a collective",
    odd: (c) => c.barrier(SHORT),
    even: (c) => c.allGather(f32(8), SHORT),
    names: [/barrier/, /all_?gather/i],
  },
  {
    what: "counts of a variable collective",
    odd: (c) => c.allGatherV(f32(2), { ...SHORT, counts: [3, 2, 3] }),
    even: (c) => c.allGatherV(f32(3), { ...SHORT, counts: [3, 3, 3] }),
    names: [/all_?gather_?v/i],
  },
  {
    what: "gather against scatter",
    odd: (c) => c.scatter(f32(3), { ...SHORT, root: 0 }),
    even: (c) => c.gather(f32(3), { ...SHORT, root: 0 }),
    names: [/scatter/, /gather/],
  },
];

function mismatchCase(d: Disagreement): SemanticCase {
  return {
    name: `ranks that disagree on the ${d.what} all learn both sides`,
    ranks: 3,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "mismatch");
      await works(context, "before", group);
      const began = Date.now();
      const error = await fails(context, d.what, ["MISMATCH"], () =>
        finish(group, (group.rank === 1 ? d.odd : d.even)(group)),
      );
      holds(context, "it took far less than the deadline", Date.now() - began < 5_000);
      if (error !== undefined) {
        for (const name of d.names)
          holds(context, `the message names ${name}: ${error.message}`, name.test(error.message));
        const sides = (error as MismatchError).sides;
        holds(
          context,
          "sides of rank 1 and of another",
          sides.some((s) => s.rank === 1) && sides.some((s) => s.rank !== 1),
        );
      }
      await fails(context, "new work afterwards", ["MISMATCH"], () => group.barrier(SHORT).wait());
      await works(context, "the world afterwards", context.comm);
      await group.close().catch(() => {});
    },
  };
}

function missingCase(drive: "wait" | "await"): SemanticCase {
  return {
    name: `a deadline names the rank that is missing (${drive})`,
    ranks: 3,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "late");
      // The others leave the barrier after this moment, and the first of their deadlines ends the group for all.
      const before = Date.now();
      await group.barrier(SOON);
      if (group.rank !== 1) {
        const began = Date.now();
        const work = () => group.allReduce(f32(4), { timeoutMs: MISSING_MS });
        const error = await fails(context, "all-reduce without rank 1", ["TIMEOUT"], () =>
          drive === "wait" ? work().wait() : work(),
        );
        const ended = Date.now();
        holds(context, `it took ${ended - before} ms, ${MISSING_MS} expected`, ended - before >= MISSING_MS - 50);
        holds(context, `it took ${ended - began} ms, less than 4000 expected`, ended - began < 4_000);
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
    async run(context) {
      const odd: readonly [string, (c: Communicator) => Work<unknown>, readonly RegExp[]][] = [
        ["4 elements for 8", (c) => c.recv(f32(8), 0, SHORT), [/\b4\b/, /\b8\b/]],
        ["f32 for i32", (c) => c.recv(new Int32Array(4), 0, SHORT), [/f32/, /i32/]],
        ["4 elements for 500,000", (c) => c.recv(f32(500_000), 0, SHORT), [/500_?000/]],
      ];
      for (const storage of ["array", "tensor"] as const) {
        for (const [what, recv, names] of odd) {
          const group = await ownGroup(context, `pair ${storage} ${what}`);
          const data = storage === "array" ? f32(4) : context.world.tensor("f32", [4]);
          // A small send may be done before the receiver looks: then the next call says it.
          const attempt = async () => {
            if (group.rank === 1) return finish(group, recv(group));
            await finish(group, group.send(data, 1, SHORT));
            return group.barrier(SHORT);
          };
          const error = await fails(context, `${storage}: ${what}`, ["MISMATCH"], attempt);
          for (const name of names) {
            holds(context, `the message names ${name}: ${error?.message}`, name.test(error?.message ?? ""));
          }
          await works(context, "the world afterwards", context.comm);
          await group.close().catch(() => {});
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
        const group = await ownGroup(context, `counts ${storage}`);
        const data = () => (storage === "array" ? f32(6) : context.world.tensor("f32", [6]));
        // Rank 1 sends rank 2 three elements, and rank 2 expects two of it.
        const odd = group.rank === 1 ? { sendCounts: [1, 2, 3], recvCounts: [2, 2, 2] } : undefined;
        const counts = odd ?? { sendCounts: [2, 2, 2], recvCounts: group.rank === 0 ? [2, 1, 2] : [2, 2, 2] };
        const received = counts.recvCounts.reduce((a, b) => a + b, 0);
        const output = storage === "array" ? f32(received) : context.world.tensor("f32", [received]);
        const error = await fails(context, `${storage}: counts`, ["MISMATCH"], () =>
          finish(group, group.allToAllV(data(), { ...counts, output, ...SHORT })),
        );
        for (const name of [/rank 1/, /rank 2/, /\b3\b/, /\b2\b/]) {
          holds(context, `the message names ${name}: ${error?.message}`, name.test(error?.message ?? ""));
        }
        await works(context, "the world afterwards", context.comm);
        await group.close().catch(() => {});
      }
    },
  },
  {
    name: "what was sent arrives, also when the sender closes the group at once",
    ranks: 2,
    needs: ["split", "send"],
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
  {
    name: "a receive that nobody answers times out and names the peer",
    ranks: 2,
    needs: ["split", "send"],
    async run(context) {
      const group = await ownGroup(context, "silent");
      if (group.rank === 0) {
        const error = await fails(context, "recv", ["TIMEOUT"], () => group.recv(f32(4), 1, { timeoutMs: 250 }));
        holds(context, `rank 1 is named: ${error?.message}`, /\b1\b/.test(error?.message ?? ""));
      }
      await works(context, "the world afterwards", context.comm);
      await group.close().catch(() => {});
    },
  },
  {
    name: "abort fails the pending work of every rank with its reason",
    ranks: 3,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "aborted");
      const pending = group.rank === 2 ? undefined : group.allReduce(f32(100), SOON);
      await context.comm.barrier(SOON);
      const began = Date.now();
      if (group.rank === 2) group.abort("enough of this");
      const error = await fails(context, "work", ["ABORTED"], () => pending ?? group.barrier(SHORT));
      holds(context, "within a second", Date.now() - began < 1_500);
      holds(context, `the reason is there: ${error?.message}`, /enough of this/.test(error?.message ?? ""));
      await fails(context, "new work", ["ABORTED"], () => group.barrier(SHORT).wait());
      await works(context, "the world afterwards", context.comm);
      await group.close().catch(() => {});
    },
  },
  {
    name: "an AbortSignal ends a call",
    ranks: 2,
    needs: ["split"],
    async run(context) {
      const group = await ownGroup(context, "signal");
      if (group.rank === 0) {
        const controller = new AbortController();
        const work = group.allReduce(f32(4), { ...SOON, signal: controller.signal });
        setImmediate(() => controller.abort(new Error("the user left")));
        await fails(context, "the signalled call", ["ABORTED"], () => work);
        await fails(context, "a call with a signal that is aborted already", ["ABORTED"], () =>
          group.allReduce(f32(4), { signal: AbortSignal.abort("gone") }),
        );
      }
      await works(context, "the world afterwards", context.comm);
      await group.close().catch(() => {});
    },
  },
  {
    name: "survivors shrink a group that failed",
    ranks: 4,
    needs: ["split", "shrink"],
    async run(context) {
      const group = await ownGroup(context, "shrinking");
      if (group.rank !== 2) {
        await fails(context, "without rank 2", ["TIMEOUT"], () => group.barrier({ timeoutMs: 300 }));
        const smaller = await group.shrink([2]);
        equal(context, "size", smaller.size, 3);
        equal(context, "ranks", smaller.ranks, [0, 1, 3]);
        const sum = await smaller.allReduce(new Int32Array([group.rank]), SOON);
        equal(context, "sum", sum.data[0], 4);
        await smaller.close();
      }
      await works(context, "the world afterwards", context.comm);
      await group.close().catch(() => {});
    },
  },
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
