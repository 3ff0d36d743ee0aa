/**
 * How the members of a larger group meet: a dissemination of radix 4 (after Hensgen, Finkel, Manber: "Two algorithms for
 * barrier synchronization", IJPP 17, 1988). In round k a member tells those at distances 1, 2 and 3 times 4^k that it and
 * all it heard of have come. Each message has a cache line of its own, which one member writes and one polls, where a word
 * that all poll costs its writer a miss for each of them.
 *
 * It is a shortcut: who hears nothing in time looks at the words that every member publishes. So nothing is kept of a
 * meeting that was left, and ranks that sleep need nobody to pass anything on.
 */
import type { FunctionBuilder, ModuleBuilder } from "../../executor/internal.ts";
import { LINE, linksOf, MEETING, MEMBER } from "./layout.ts";

/** The words of a group's links: rounds of (count, then pairs of addresses: where to write, what to poll), and a 0. */
export function meetingTable(links: number, me: number, n: number): number[] {
  const perMember = linksOf(n);
  const table: number[] = [];
  let link = 0;
  for (let distance = 1; distance < n; distance *= MEETING.radix) {
    const steps = Array.from({ length: MEETING.radix - 1 }, (_, j) => (j + 1) * distance).filter((step) => step < n);
    table.push(steps.length);
    for (const step of steps) {
      const at = (member: number) => links + (member * perMember + link) * LINE;
      table.push(at((me + step) % n), at(me));
      link++;
    }
  }
  return [...table, 0];
}

interface MeetingCode {
  /** (member, flag, spins) -> spins that are left, 0 when the others were not heard of. A peer that is further on has come. */
  readonly arrive: FunctionBuilder;
  /** (member, seq, spins) -> the same for the end of an operation. */
  readonly finish: FunctionBuilder;
  /** (member, flag): tells all at once what they would hear in rounds, after everybody was seen. */
  readonly announce: FunctionBuilder;
}

export function addMeetings(module: ModuleBuilder): MeetingCode {
  const rounds = (isArrival: boolean) =>
    module.function({ params: ["i32", isArrival ? "i64" : "i32", "i32"], results: ["i32"] }, (f) => {
      const [member, flag, spins] = [f.param(0), f.param(1), f.param(2)];
      const [at, left, seen] = f.locals("i32", "i32", "i32");
      const stamp = () => {
        f.get(flag);
        if (isArrival) f.op("i32.wrap_i64");
      };
      const offset = isArrival ? MEETING.arrived : MEETING.finished;
      f.get(member).mem("i32.load", MEMBER.meetings).set(at);
      f.loop(() => {
        const eachLink = (body: () => void) => {
          f.get(at).mem("i32.load").set(left);
          f.get(at).set(seen);
          f.loop(() => {
            body();
            f.get(seen).i32(8).op("i32.add").set(seen);
            f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
          });
        };
        eachLink(() => {
          f.get(seen).mem("i32.load", 4).get(flag);
          f.mem(isArrival ? "i64.atomic.store" : "i32.atomic.store", offset);
        });
        eachLink(() => {
          f.block(() =>
            f.loop(() => {
              // The low half is the number of the call: a later one has come to this one too.
              f.get(seen).mem("i32.load", 8).mem("i32.atomic.load", offset);
              stamp();
              f.op("i32.sub").i32(0).op("i32.ge_s").brIf(1);
              f.get(spins).i32(1).op("i32.le_s");
              f.if(() => f.i32(0).op("return"));
              f.get(spins).i32(1).op("i32.sub").set(spins).br(0);
            }),
          );
          if (!isArrival) return;
          // Another call of the same number: the published words say what it is.
          const theirs = f.local("i64");
          f.get(seen).mem("i32.load", 8).mem("i64.atomic.load", offset).tee(theirs).op("i32.wrap_i64");
          stamp();
          f.op("i32.eq").get(theirs, flag).op("i64.eq", "i32.eqz", "i32.and");
          f.if(() => f.i32(0).op("return"));
        });
        f.get(seen).i32(4).op("i32.add").tee(at).mem("i32.load").brIf(0);
      });
      f.get(spins);
    });
  const announce = module.function({ params: ["i32", "i64"], results: [] }, (f) => {
    const [member, flag] = [f.param(0), f.param(1)];
    const [at, left] = f.locals("i32", "i32");
    f.get(member).mem("i32.load", MEMBER.meetings).tee(at).op("i32.eqz");
    f.if(() => f.op("return"));
    f.block(() =>
      f.loop(() => {
        f.get(at).mem("i32.load").tee(left).op("i32.eqz").brIf(1);
        f.loop(() => {
          f.get(at).mem("i32.load", 4).get(flag).mem("i64.atomic.store", MEETING.arrived);
          f.get(at).i32(8).op("i32.add").set(at);
          f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
        });
        f.get(at).i32(4).op("i32.add").set(at).br(0);
      }),
    );
  });
  return { arrive: rounds(true), finish: rounds(false), announce };
}
