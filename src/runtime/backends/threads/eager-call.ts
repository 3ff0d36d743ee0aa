/**
 * A small collective from its beginning to its entry in the flight recorder, in one call into WebAssembly: `eagerCall`, beside `eager`
 * (eager-code.ts), which goes on with a call that could not end. Two ranks that send each other one message, as in all-reduces,
 * have a way of their own: where the other one's line takes as long to come as 300 instructions, those between a message's arrival
 * and the next one's departure are what can be saved. What need not stand there stands between a departure and an arrival.
 */
import type { FunctionBuilder, Local, ModuleBuilder } from "../../executor/internal.ts";
import { BOX_BYTES, ENTRY, GROUP, MEMBER, RANK, RING, TASK } from "./layout.ts";

/** The status of a call that has not begun: see `ProtocolExports.eagerCall`. */
export const LOOK_FIRST = 0x20000;

/** How far a call is that could not go on: it has announced itself, or sent all that it has to send. */
export const STAGE = { none: 0, begun: 1, sent: 2 } as const;

/** What is done with received data where no kernel reduces it. */
export const FINISH = { nothing: -1, copies: -2 } as const;

/** A message of so many bytes is written without a loop. */
const UNROLLED_BYTES = 64;

interface EagerCallParts {
  readonly kernelType: number;
  /** (to, from, bytes): of data that goes into a message. */
  readonly fill: FunctionBuilder;
  /** (member) */
  readonly ring: FunctionBuilder;
  readonly publish: (f: FunctionBuilder, member: Local, task: Local, seq: Local) => void;
  /** (member, task, seq, spins) -> status */
  readonly eager: FunctionBuilder;
  /** (member, task, output) */
  readonly finish: FunctionBuilder;
}

/** Leaves what a message carries on the stack: see `addFlagOf`. */
export function flagFrom(f: FunctionBuilder, member: Local, seq: Local): void {
  f.get(member)
    .mem("i32.load", MEMBER.history)
    .op("i64.extend_i32_u")
    .i64(32)
    .op("i64.shl")
    .get(seq)
    .op("i64.extend_i32_u", "i64.or");
}

/** Has a message seen that is in its slot: `sent` were before it. */
export function showMessage(f: FunctionBuilder, slot: Local, flag: Local, state: Local, sent: Local): void {
  f.get(slot, flag).release("i64");
  f.get(state, sent).i32(1).op("i32.add").mem("i32.store", RING.sent);
}

/** Notes that so many messages of a ring were taken, the last of them that of a call. */
export function noteTaken(f: FunctionBuilder, state: Local, taken: Local, seq: Local): void {
  f.get(state, taken).mem("i32.store", RING.taken);
  f.get(state, seq).mem("i32.store", RING.takenStamp);
}

/** Wakes those who sleep until something comes. `ring`: (member) */
export function ringSleepers(f: FunctionBuilder, member: Local, ring: FunctionBuilder): void {
  f.get(member).mem("i32.load", MEMBER.sleepers).mem("i64.atomic.load").op("i64.eqz", "i32.eqz");
  f.if(() => f.get(member).call(ring));
}

/** Adds `eagerCall(member, task, seq, high, spins) -> status`. */
export function addEagerCall(module: ModuleBuilder, parts: EagerCallParts): void {
  module.function(
    { params: ["i32", "i32", "i32", "i32", "i32"], results: ["i32"] },
    (f) => {
      const [member, task, seq, high, spins] = [f.param(0), f.param(1), f.param(2), f.param(3), f.param(4)];
      const [status, group, rank, entries] = f.locals("i32", "i32", "i32", "i32");
      const note = () => {
        f.get(member).mem("i32.load", MEMBER.rank).tee(rank).mem("i32.load", RANK.flightCount).set(entries);
        noteFlight(f, { group, task, seq, high, rank, entries });
      };
      f.get(member).mem("i32.load", MEMBER.group).tee(group).mem("i32.load", GROUP.state);
      f.get(group).mem("i32.load", GROUP.numLeft).op("i32.or");
      f.if(() => f.i32(LOOK_FIRST).op("return"));
      f.get(task).mem("i32.load", TASK.theirBoxes);
      f.if(
        // Its entry is written over the oldest one, and counts when the call is done.
        () => exchange(f, member, task, seq, spins, parts, note),
        () => {
          f.get(member, task, seq, spins).call(parts.eager).tee(status);
          f.if(() => f.get(status).op("return"));
          note();
        },
      );
      f.get(rank, entries).i32(1).op("i32.add").mem("i32.store", RANK.flightCount);
      f.i32(0);
    },
    "eagerCall",
  );
}

/** Writes the entry of a call that is done, as `FlightRing.note` does. */
function noteFlight(
  f: FunctionBuilder,
  of: { readonly [N in "group" | "task" | "seq" | "high" | "rank" | "entries"]: Local },
) {
  const at = f.local("i32");
  const entry = (field: number) => RANK.flight + field;
  f.get(of.entries)
    .i32(RANK.flightEntries - 1)
    .op("i32.and")
    .i32(RANK.flightEntryBytes)
    .op("i32.mul");
  f.get(of.rank).op("i32.add").set(at);
  f.get(at, of.group).mem("i32.store", entry(ENTRY.group));
  f.get(at, of.seq).i32(1).op("i32.sub").mem("i32.store", entry(ENTRY.seq));
  f.get(at, of.task).mem("i64.load", TASK.call).mem("i64.store", entry(ENTRY.call));
  f.get(at).i32(1).mem("i32.store", entry(ENTRY.state));
  f.get(at, of.high).mem("i32.store", entry(ENTRY.seqHigh));
  f.get(at).i64(0).mem("i64.store", entry(ENTRY.time));
}

/**
 * What `eager` does of two ranks that send each other one message, from its beginning. `meanwhile`: done while the messages are on
 * their way. Leaves the function where the call could not end, with its status.
 */
function exchange(
  f: FunctionBuilder,
  member: Local,
  task: Local,
  seq: Local,
  spins: Local,
  parts: EagerCallParts,
  meanwhile: () => void,
): void {
  const [flag, slot, count, table, state, status] = f.locals("i64", "i32", "i32", "i32", "i32", "i32");
  const setting = (field: number) => f.get(task).mem("i32.load", field);
  const boxAt = (boxes: number) => {
    setting(boxes)
      .get(count)
      .i32(RING.numBoxes - 1);
    f.op("i32.and").i32(BOX_BYTES).op("i32.mul", "i32.add").set(slot);
  };
  parts.publish(f, member, task, seq);
  flagFrom(f, member, seq);
  f.set(flag);
  setting(TASK.myState).tee(state).mem("i32.load", RING.sent).set(count);
  boxAt(TASK.myBoxes);
  fillBox(f, task, slot, parts.fill);
  showMessage(f, slot, flag, state, count);

  meanwhile();
  setting(TASK.theirState).tee(state).mem("i32.load", RING.taken).set(count);
  boxAt(TASK.theirBoxes);
  f.get(member).mem("i32.load", MEMBER.inTable).set(table);
  listInputs(f, member, task, table, slot);
  f.block(() => {
    look(f, task, slot, flag, spins, () => {
      // Looks once more, and says what is missing or differs.
      f.get(member).i32(STAGE.sent).mem("i32.store", MEMBER.stage);
      f.get(member, task, seq).i32(1).call(parts.eager).tee(status);
      f.if(() => f.get(status).op("return"));
    });
    setting(TASK.finish).i32(0).op("i32.ge_s");
    f.if(
      () => {
        f.get(table).i32(2).get(member).mem("i32.load", MEMBER.outTable).i32(1).i32(0);
        setting(TASK.partBytes).get(member).mem("i32.load", MEMBER.context);
        setting(TASK.finish).callIndirect(parts.kernelType);
      },
      () => {
        f.get(member, task);
        setting(TASK.output).call(parts.finish);
      },
    );
    f.get(count).i32(1).op("i32.add").set(count);
    noteTaken(f, state, count, seq);
    ringSleepers(f, member, parts.ring);
  });
}

/** Writes the data of a message. */
function fillBox(f: FunctionBuilder, task: Local, slot: Local, fill: FunctionBuilder): void {
  const [input, bytes] = f.locals("i32", "i32");
  f.get(task).mem("i32.load", TASK.input).set(input);
  f.get(task).mem("i32.load", TASK.postBytes).tee(bytes).i32(UNROLLED_BYTES).op("i32.eq");
  f.if(
    () => {
      // From its end, as `fill` does.
      for (let i = UNROLLED_BYTES - 16; i >= 0; i -= 16) {
        f.get(slot, input)
          .mem("v128.load", i)
          .mem("v128.store", RING.data + i);
      }
    },
    () => f.get(slot).i32(RING.data).op("i32.add").get(input, bytes).call(fill),
  );
}

/** Fills the tables of a kernel, by rank: this member's part, and the one that comes. */
function listInputs(f: FunctionBuilder, member: Local, task: Local, table: Local, slot: Local): void {
  const me = f.local("i32");
  const setting = (field: number) => f.get(task).mem("i32.load", field);
  f.get(member).mem("i32.load", MEMBER.me).set(me);
  f.get(table, me).i32(2).op("i32.shl", "i32.add");
  setting(TASK.input).get(me);
  setting(TASK.inputStride).op("i32.mul", "i32.add").mem("i32.store");
  f.get(table).i32(1).get(me).op("i32.sub").i32(2).op("i32.shl", "i32.add").get(slot).i32(RING.data).op("i32.add");
  setting(TASK.ownOffset).op("i32.add").mem("i32.store");
  f.get(member).mem("i32.load", MEMBER.outTable);
  setting(TASK.output).mem("i32.store");
}

/** Waits for a message. `missed`: where it has not come; leaves the block around this one then. */
function look(f: FunctionBuilder, task: Local, slot: Local, flag: Local, spins: Local, missed: () => void): void {
  const last = f.local("i32");
  f.get(task).mem("i32.load", TASK.polledToo).get(slot).op("i32.add").set(last);
  f.block(() =>
    f.loop(() => {
      f.get(slot).mem("i64.atomic.load").get(flag).op("i64.eq").brIf(1);
      f.get(last).mem("i64.atomic.load").op("drop");
      f.get(spins).i32(1).op("i32.sub").tee(spins).i32(0).op("i32.gt_s").brIf(0);
      missed();
      f.br(2);
    }),
  );
}
