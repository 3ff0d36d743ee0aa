import { describe, expect, it, onTestFinished, vi } from "vitest";
import { AbortedError } from "../../../core/index.ts";
import { COLLECTIVE, ControlSegment, controlBytes } from "../../memory/index.ts";
import { type Arrival, Poller, QueuedWork } from "../../progress/index.ts";
import { type Activity, MpiEntry } from "./mpi-entry.ts";
import type { MpiProcess } from "./mpi-process.ts";
import { MpiQueue } from "./mpi-queue.ts";

const SIZE = 2;

/** The queue of rank 0 of two, over a communicator that nothing here asks MPI for, and rank 1's side of their group. */
function queueOfTwo() {
  const ranks = Array.from({ length: SIZE }, (_, rank) => rank);
  const buffer = new SharedArrayBuffer(controlBytes(SIZE));
  const [own, other] = ranks.map((rank) => new ControlSegment(buffer, SIZE).group("tp", ranks, 0, rank));
  if (own === undefined || other === undefined) throw new Error("no group");
  const mpi = { abandoned: [], gaveUp: false, hostActivities: [] } as unknown as MpiProcess;
  const options = { control: own, ranks, group: "tp", generation: 0, poller: new Poller(), mpi, comm: 1 };
  return { queue: new MpiQueue(options), mpi, other };
}

/** A collective whose part is brought already. */
function broughtCall(queue: MpiQueue, begin: Activity["begin"] = () => {}) {
  const stops: string[] = [];
  const activity: Activity = {
    stepped: true,
    bring: () => {},
    hasMet: () => true,
    begin,
    advance: () => false,
    stop: () => stops.push("stopped"),
  };
  const print = { call: 1, count: 8, hash: 0 };
  const arrival: Arrival = { lane: COLLECTIVE, seq: 1, print };
  const work = new QueuedWork<unknown>(queue, 1, "all_gather", "tp");
  const parts = { op: "all_gather", arrivals: [arrival], activities: [activity], comparesLater: true } as const;
  return { entry: new MpiEntry(work, parts, 1000), work, stops };
}

describe("an MPI queue and calls whose part others have found", () => {
  it("stops one that it refuses because a member has failed since the part was brought", () => {
    const { queue, mpi, other } = queueOfTwo();
    const { entry, stops } = broughtCall(queue);
    other.fail({ code: "ABORTED", reason: "enough" });
    expect(() => queue.push(entry)).toThrow(AbortedError);
    expect(stops).toEqual(["stopped"]);
    // MPI holds nothing of it.
    expect(mpi.gaveUp).toBe(false);
  });

  it("stops one that fails as it begins, before the others hear of it", () => {
    const { queue, other } = queueOfTwo();
    const failedYet: boolean[] = [];
    const { entry, work, stops } = broughtCall(queue, () => {
      throw new AbortedError("no memory");
    });
    entry.activities[0]!.stop = () => {
      failedYet.push(other.failed);
      stops.push("stopped");
    };
    queue.push(entry);
    expect(work.error).toBeInstanceOf(AbortedError);
    expect(failedYet[0]).toBe(false);
    expect(stops).toEqual(["stopped"]);
  });

  it("stops one that runs when a member fails, and says that MPI may hold something of it", () => {
    const { queue, mpi, other } = queueOfTwo();
    const { entry, work, stops } = broughtCall(queue);
    queue.push(entry);
    other.fail({ code: "ABORTED", reason: "enough" });
    queue.poll(performance.now());
    expect(work.error).toBeInstanceOf(AbortedError);
    expect(stops).toEqual(["stopped"]);
    expect(mpi.gaveUp).toBe(true);
  });
});

it("looks at the clock after each step of a large call, so that a turn of the event loop stays short", () => {
  const { queue, other } = queueOfTwo();
  const { entry, work } = broughtCall(queue);
  let now = performance.now();
  const clock = vi.spyOn(performance, "now").mockImplementation(() => now);
  onTestFinished(() => clock.mockRestore());
  let numSteps = 0;
  entry.activities[0]!.advance = () => {
    // As long as a step of some megabytes may take.
    now += 2;
    numSteps++;
    return false;
  };
  queue.push(entry);
  for (const turn of [() => queue.poll(now), () => queue.watch(work), () => queue.advance(work, now)]) {
    numSteps = 0;
    turn();
    expect(numSteps).toBeGreaterThan(0);
    expect(numSteps).toBeLessThanOrEqual(3);
  }
  other.fail({ code: "ABORTED", reason: "enough" });
  queue.poll(now);
});
