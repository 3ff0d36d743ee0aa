/**
 * The threads backend's inner loops, as WebAssembly functions beside the reduction kernels: announcing a call, polling
 * the peers, comparing fingerprints, waking sleepers, and a complete all-reduce that needs one call from JavaScript. All waiting here is bounded by `spins`; JavaScript decides what comes after.
 *
 * Status of the waiting functions: 0 all there; 1 + p rank p is missing; -1 - p rank p's call differs from ours.
 */

import { opCode } from "../../comm/index.ts";
import {
  addCopy,
  addCopyBackwards,
  addReduceKernels,
  addStrandMachine,
  addWiden,
  builtCode,
  compileModule,
  type FunctionBuilder,
  type Local,
  type MachineExports,
  ModuleBuilder,
  type Signature,
  type WasmFunction,
  type WasmModule,
  type WidenExports,
} from "../../executor/internal.ts";
import { addEager, addFlagOf } from "./eager-code.ts";
import { HISTORY, LINE, MEMBER, RANK, SLOT, TASK } from "./layout.ts";
import { addMeetings } from "./meeting-code.ts";

/** What the module exports. Addresses and counts are numbers; above 2^31 they wrap into i32 on the way. */
export interface ProtocolExports extends MachineExports, WidenExports {
  /**
   * (member, seq, call, count, extra, input, output): announces our call. Once for each: it goes into the hash of all calls,
   * by which a difference that no message showed is seen at the next call in which ranks hear of each other.
   */
  readonly publish: WasmFunction;
  /**
   * (member, seq, spins, passable) -> status: waits for all peers' announcements; fills the tables of inputs and outputs.
   * `passable`: a peer that announced a later call has come too.
   */
  readonly arrived: WasmFunction;
  /** (member, seq): announces that our share of the work is done. */
  readonly finish: WasmFunction;
  /** (member, seq, spins) -> status */
  readonly finished: WasmFunction;
  /** (member, seq, call, count, extra, input, output, spins) -> status: `publish` and `arrived`. */
  readonly enter: WasmFunction;
  /** (member, seq, spins) -> status: `finish` and `finished`. */
  readonly leave: WasmFunction;
  /** (kernel, inTable, numIn, outTable, numOut, start, end, context) */
  readonly reduce: WasmFunction;
  /** (member, seq, call, count, extra, input, output, start, end, kernel, spins) -> status; IN_SECOND_PHASE added there. */
  readonly twoShot: WasmFunction;
  /**
   * (member, seq, call, count, extra, input, output, run, spins, endsAlone, endSpins) -> status: a whole call that a plan serves,
   * from its announcement to its end; IN_STRANDS or IN_SECOND_PHASE added there. `run`: the context of the prepared plan;
   * `endSpins`: polls for the end of others that have come.
   */
  readonly runPlan: WasmFunction;
  /** (member, task, seq, spins) -> status: a small collective; see eager-code.ts. */
  readonly eager: WasmFunction;
  /**
   * (member, task, seq, high half of the call's number, spins) -> status: the same from its beginning to its entry in the flight
   * recorder, for a call that may be done at once. LOOK_FIRST: nothing was done, as the group has failed or somebody has left it.
   */
  readonly eagerCall: WasmFunction;
  /** (to, from, bytes) */
  readonly copy: WasmFunction;
  /** (to, bytes) */
  readonly zero: WasmFunction;
}

/** Added to the status of `twoShot` and `runPlan` when our share is done and only the others' end is missing. */
export const IN_SECOND_PHASE = 0x10000;
/** Added to the status of `runPlan` when the strands run and wait for others. */
export const IN_STRANDS = 0x20000;

const i32s = (count: number): readonly "i32"[] => Array.from({ length: count }, () => "i32");
const signature = (params: number, results: 0 | 1): Signature => ({ params: i32s(params), results: i32s(results) });

/** The slot array of an operation: two, by the parity of `seq`, because a fast peer may be one operation ahead. */
function slotsOf(f: FunctionBuilder, member: Local, seq: Local): FunctionBuilder {
  return f.get(member, seq).i32(1).op("i32.and").i32(2).op("i32.shl", "i32.add").mem("i32.load", MEMBER.slots);
}

/** Whom a member need not wake: nobody; who has done its share of the call, too; who has begun the next call. */
type Spared = "nobody" | "whoHasFinished" | "whoIsPast";

/**
 * (member, seq): wakes the members that sleep. Whoever has come to the end of a call does it, those just woken too: each begins
 * behind itself and leaves out whom another one wakes, so that many are woken side by side, each by one. Who sleeps in a later
 * step is not woken by the end of this one: where ranks share cores, most of them do by the time that the last ones come here.
 */
function addRing(module: ModuleBuilder, wake: FunctionBuilder | undefined, spared: Spared): FunctionBuilder {
  return module.function(signature(spared === "nobody" ? 1 : 2, 0), (f) => {
    const member = f.param(0);
    const [p, n, left, table, door, next] = f.locals("i32", "i32", "i32", "i32", "i32", "i32");
    /** Leaves whether member `p` waits for what comes behind this step. */
    const isBehind = () => {
      const seq = f.param(1);
      f.get(seq).i32(1).op("i32.add").set(next);
      slotsOf(f, member, next).get(p).i32(SLOT.sizeBytes).op("i32.mul", "i32.add").mem("i32.atomic.load", SLOT.seq);
      f.get(next).op("i32.sub").i32(0).op("i32.ge_s");
      if (spared === "whoIsPast") return f;
      f.get(member).mem("i32.load", MEMBER.done).get(p).i32(LINE).op("i32.mul", "i32.add").mem("i32.atomic.load");
      return f.get(seq).op("i32.eq", "i32.or");
    };
    f.get(member).mem("i32.load", MEMBER.sleepers).tee(table).mem("i64.atomic.load").op("i64.eqz");
    f.if(() => f.op("return"));
    // Whoever went to sleep just now may have looked before what this rank has stored was there to see.
    f.fence();
    f.get(table).mem("i32.atomic.load").op("i32.eqz");
    f.if(() => f.op("return"));
    f.get(member).mem("i32.load", MEMBER.size).tee(n).i32(1).op("i32.sub").tee(left).op("i32.eqz");
    f.if(() => f.op("return"));
    f.get(member).mem("i32.load", MEMBER.doorTable).set(table);
    f.get(member).mem("i32.load", MEMBER.me).set(p);
    f.loop(() => {
      f.get(p).i32(1).op("i32.add").tee(p).get(n).op("i32.eq");
      f.if(() => f.i32(0).set(p));
      f.get(table).get(p).i32(2).op("i32.shl", "i32.add").mem("i32.load").set(door);
      f.block(() => {
        f.get(door).mem("i32.atomic.load", RANK.sleeping).op("i32.eqz").brIf(0);
        if (spared !== "nobody") isBehind().brIf(0);
        f.get(door).i32(1).mem("i32.atomic.rmw.xchg", RANK.rung).brIf(0);
        f.get(door).i32(1).mem("i32.atomic.rmw.add", RANK.doorbell).op("drop");
        if (wake === undefined) f.get(door).i32(-1).mem("memory.atomic.notify", RANK.doorbell).op("drop");
        else f.get(door).call(wake);
      });
      f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
    });
  });
}

/**
 * The peers wait for it: who polls for theirs next does so sooner behind a store that waits until it is seen (1.27 us against
 * 1.6, 1 KiB among 4 ranks: bench/results/threads-one-meeting-2026-11-28.md).
 */
function addPublish(module: ModuleBuilder): FunctionBuilder {
  return module.function(
    signature(7, 0),
    (f) => {
      const [member, seq, call, count] = [f.param(0), f.param(1), f.param(2), f.param(3)];
      const [extra, input, output] = [f.param(4), f.param(5), f.param(6)];
      const [slot, history] = f.locals("i32", "i32");
      slotsOf(f, member, seq).get(member).mem("i32.load", MEMBER.me).i32(SLOT.sizeBytes).op("i32.mul", "i32.add");
      f.set(slot);
      f.get(slot, call).mem("i32.store", SLOT.call).get(slot, count).mem("i32.store", SLOT.count);
      f.get(slot, extra).mem("i32.store", SLOT.extra).get(slot, input).mem("i32.store", SLOT.input);
      f.get(slot, output).mem("i32.store", SLOT.output);
      addToHistory(
        f,
        member,
        () => f.get(call),
        () => f.get(count),
        () => f.get(extra),
      );
      f.set(history).get(member, history).mem("i32.store", MEMBER.history);
      f.get(slot, history).mem("i32.store", SLOT.history).get(slot, seq).mem("i32.atomic.store", SLOT.seq);
    },
    "publish",
  );
}

/** The same of a call in messages, for which nobody polls. */
function publishTask(f: FunctionBuilder, member: Local, task: Local, seq: Local): void {
  const [slot, history] = f.locals("i32", "i32");
  const field = (offset: number) => () => f.get(task).mem("i32.load", offset);
  slotsOf(f, member, seq).get(member).mem("i32.load", MEMBER.me).i32(SLOT.sizeBytes).op("i32.mul", "i32.add");
  f.tee(slot).get(task).mem("v128.load", TASK.call).mem("v128.store", SLOT.call);
  f.get(slot, task).mem("i32.load", TASK.output).mem("i32.store", SLOT.output);
  addToHistory(f, member, field(TASK.call), field(TASK.count), field(TASK.extra));
  f.set(history).get(member, history).mem("i32.store", MEMBER.history);
  f.get(slot, history).mem("i32.store", SLOT.history).get(slot, seq).release("i32", SLOT.seq);
}

/** Leaves the hash of all calls up to one. */
function addToHistory(f: FunctionBuilder, member: Local, call: () => void, count: () => void, extra: () => void): void {
  f.get(member).mem("i32.load", MEMBER.history).i32(HISTORY.before).op("i32.mul");
  call();
  f.i32(HISTORY.call).op("i32.mul", "i32.xor");
  count();
  f.i32(HISTORY.count).op("i32.mul", "i32.add");
  extra();
  f.op("i32.xor");
}

/**
 * Spins until the word at `address` is `seq` or, counted modulo 2^32, later, and leaves their difference in `ahead`. Leaves
 * the function with 1 + p when `spins` are used up.
 */
function spinUntil(f: FunctionBuilder, address: Local, seq: Local, ahead: Local, spins: Local, p: Local): void {
  f.block(() =>
    f.loop(() => {
      f.get(address).mem("i32.atomic.load").get(seq).op("i32.sub").tee(ahead).i32(0).op("i32.ge_s").brIf(1);
      f.get(spins).op("i32.eqz");
      f.if(() => f.get(p).i32(1).op("i32.add", "return"));
      f.get(spins).i32(1).op("i32.sub").set(spins).br(0);
    }),
  );
}

function addArrived(module: ModuleBuilder, ring: FunctionBuilder): FunctionBuilder {
  return module.function(
    signature(4, 1),
    (f) => {
      const [member, seq, spins, passable] = [f.param(0), f.param(1), f.param(2), f.param(3)];
      const [p, n, slot, ahead] = f.locals("i32", "i32", "i32", "i32");
      const [call, count, extra] = f.locals("i32", "i32", "i32");
      const [inTable, outTable] = f.locals("i32", "i32");
      slotsOf(f, member, seq).tee(slot).get(member).mem("i32.load", MEMBER.me);
      f.i32(SLOT.sizeBytes).op("i32.mul", "i32.add").tee(call);
      f.mem("i32.load", SLOT.count).set(count).get(call).mem("i32.load", SLOT.extra).set(extra);
      f.get(call).mem("i32.load", SLOT.call).set(call);
      f.get(member).mem("i32.load", MEMBER.size).set(n);
      f.get(member).mem("i32.load", MEMBER.inTable).set(inTable);
      f.get(member).mem("i32.load", MEMBER.outTable).set(outTable);
      f.loop(() => {
        spinUntil(f, slot, seq, ahead, spins, p);
        f.get(ahead);
        f.if(
          () => {
            f.get(passable).op("i32.eqz");
            f.if(() => f.i32(-1).get(p).op("i32.sub", "return"));
          },
          () => {
            f.get(slot).mem("i32.load", SLOT.call).get(call).op("i32.xor");
            f.get(slot).mem("i32.load", SLOT.count).get(count).op("i32.xor", "i32.or");
            f.get(slot).mem("i32.load", SLOT.extra).get(extra).op("i32.xor", "i32.or");
            f.get(slot).mem("i32.load", SLOT.history).get(member).mem("i32.load", MEMBER.history);
            f.op("i32.xor", "i32.or");
            f.if(() => f.i32(-1).get(p).op("i32.sub", "return"));
          },
        );
        f.get(inTable, slot).mem("i32.load", SLOT.input).mem("i32.store");
        f.get(outTable, slot).mem("i32.load", SLOT.output).mem("i32.store");
        f.get(inTable).i32(4).op("i32.add").set(inTable).get(outTable).i32(4).op("i32.add").set(outTable);
        f.get(slot).i32(SLOT.sizeBytes).op("i32.add").set(slot);
        f.get(p).i32(1).op("i32.add").tee(p).get(n).op("i32.lt_u").brIf(0);
      });
      f.get(member, seq).call(ring).i32(0);
    },
    "arrived",
  );
}

function addFinish(module: ModuleBuilder): FunctionBuilder {
  return module.function(
    signature(2, 0),
    (f) => {
      const [member, seq] = [f.param(0), f.param(1)];
      f.get(member).mem("i32.load", MEMBER.done).get(member).mem("i32.load", MEMBER.me).i32(LINE);
      f.op("i32.mul", "i32.add").get(seq).mem("i32.atomic.store");
    },
    "finish",
  );
}

function addFinished(module: ModuleBuilder, ring: FunctionBuilder): FunctionBuilder {
  return module.function(
    signature(3, 1),
    (f) => {
      const [member, seq, spins] = [f.param(0), f.param(1), f.param(2)];
      const [p, n, word, ahead] = f.locals("i32", "i32", "i32", "i32");
      f.get(member).mem("i32.load", MEMBER.size).set(n).get(member).mem("i32.load", MEMBER.done).set(word);
      f.loop(() => {
        spinUntil(f, word, seq, ahead, spins, p);
        f.get(word).i32(LINE).op("i32.add").set(word);
        f.get(p).i32(1).op("i32.add").tee(p).get(n).op("i32.lt_u").brIf(0);
      });
      f.get(member, seq).call(ring).i32(0);
    },
    "finished",
  );
}

/** Fills a multiple of 128 bytes with zeros. */
function addZero(module: ModuleBuilder): void {
  module.function(
    signature(2, 0),
    (f) => {
      const [to, bytes] = [f.param(0), f.param(1)];
      f.block(() =>
        f.loop(() => {
          f.get(bytes).op("i32.eqz").brIf(1);
          for (let i = 0; i < 128; i += 16) f.get(to).splat32(0).mem("v128.store", i);
          f.get(to).i32(128).op("i32.add").set(to).get(bytes).i32(128).op("i32.sub").set(bytes).br(0);
        }),
      );
    },
    "zero",
  );
}

/**
 * By what a rank wakes another: the engine's own instruction, which reaches threads of one process, or a function `wake` that is
 * given the address of the other's doorbell.
 */
type Wakes = "notify" | "call";

/** The file in which the code comes with the package: for the kind of processor that built it, as others may reorder its stores. */
export function protocolFile(wakes: Wakes): string {
  return `threads-protocol-${wakes}-${process.arch}.wasm`;
}

/** Compiles kernels and protocol. Of threads, made once per world: the module travels to the ranks with the handle. */
export function buildProtocol(wakes: Wakes = "notify"): WasmModule {
  return compileModule(builtCode(protocolFile(wakes)) ?? assembleProtocol(wakes));
}

export function assembleProtocol(wakes: Wakes): Uint8Array<ArrayBuffer> {
  const module = new ModuleBuilder();
  const wake = wakes === "call" ? module.importFunction("wake", signature(1, 0)) : undefined;
  const moveLarge = module.importFunction("moveLarge", signature(3, 0));
  const typeIndex = addReduceKernels(module);
  const ring = addRing(module, wake, "nobody");
  const ringEnded = addRing(module, wake, "whoIsPast");
  const publish = addPublish(module);
  const arrived = addArrived(module, addRing(module, wake, "whoHasFinished"));
  const finish = addFinish(module);
  const finished = addFinished(module, ringEnded);
  const copy = addCopy(module, "copy", moveLarge);
  const machine = addStrandMachine(module, { kernelType: typeIndex, copy, ring });
  addWiden(module);
  addZero(module);

  const meetings = addMeetings(module);
  const flagOf = addFlagOf(module);
  addEager(module, {
    kernelType: typeIndex,
    copy,
    fill: addCopyBackwards(module),
    ring,
    publish: publishTask,
  });

  /** (member, seq, passable, spins) -> status: waits for all, by messages where the group is large and all are awake. */
  const come = module.function(signature(4, 1), (f) => {
    const [member, seq, passable, spins] = [f.param(0), f.param(1), f.param(2), f.param(3)];
    const [status, missed, flag] = f.locals("i32", "i32", "i64");
    f.get(member).mem("i32.load", MEMBER.meetings);
    f.if(() => {
      f.get(member, seq).call(flagOf).set(flag);
      // Who sleeps passes nothing on.
      f.get(member).mem("i32.load", MEMBER.sleepers).mem("i32.atomic.load").op("i32.eqz");
      f.if(() => f.get(member, flag, spins).call(meetings.arrive).set(missed));
      f.get(missed).op("i32.eqz").set(missed);
    });
    f.get(member, seq, spins, passable).call(arrived).tee(status);
    f.if(() => f.get(status).op("return"));
    f.get(missed);
    f.if(() => f.get(member, flag).call(meetings.announce));
    f.i32(0);
  });
  /** (member, seq, spins) -> status: says that our share is done, and waits until all are. */
  const leave = module.function(
    signature(3, 1),
    (f) => {
      const [member, seq, spins] = [f.param(0), f.param(1), f.param(2)];
      f.get(member, seq).call(finish);
      f.get(member).mem("i32.load", MEMBER.meetings);
      f.if(() => {
        f.get(member).mem("i32.load", MEMBER.sleepers).mem("i32.atomic.load").op("i32.eqz");
        f.if(() => {
          f.get(member, seq, spins).call(meetings.finish);
          f.if(() => f.get(member, seq).call(ringEnded).i32(0).op("return"));
        });
      });
      f.get(member, seq, spins).call(finished);
    },
    "leave",
  );

  module.function(
    signature(8, 1),
    (f) => {
      for (let i = 0; i < 7; i++) f.get(f.param(i));
      f.call(publish).get(f.param(0), f.param(1));
      f.get(f.param(2)).i32(63).op("i32.and").i32(opCode("barrier")).op("i32.eq");
      f.get(f.param(7)).call(come);
    },
    "enter",
  );

  module.function(
    signature(8, 0),
    (f) => {
      for (let i = 1; i < 8; i++) f.get(f.param(i));
      f.get(f.param(0)).callIndirect(typeIndex);
    },
    "reduce",
  );

  // Where the members poll each other's words, as in most groups, this spares two calls through `come` and `leave`.
  const byMessages = (f: FunctionBuilder, member: Local) => f.get(member).mem("i32.load", MEMBER.meetings);
  const endCall = (f: FunctionBuilder, member: Local, seq: Local, spins: Local, status: Local) => {
    byMessages(f, member);
    f.if(
      () => f.get(member, seq, spins).call(leave).set(status),
      () => f.get(member, seq).call(finish).get(member, seq, spins).call(finished).set(status),
    );
    f.get(status);
    f.if(() => f.get(status).i32(IN_SECOND_PHASE).op("i32.add", "return"));
    f.i32(0);
  };

  module.function(
    signature(11, 1),
    (f) => {
      const [member, seq, call, count, extra] = [f.param(0), f.param(1), f.param(2), f.param(3), f.param(4)];
      const [input, output, start, end] = [f.param(5), f.param(6), f.param(7), f.param(8)];
      const [kernel, spins] = [f.param(9), f.param(10)];
      const status = f.local("i32");
      f.get(member, seq, call, count, extra, input, output).call(publish);
      byMessages(f, member);
      f.if(
        () => f.get(member, seq).i32(0).get(spins).call(come).set(status),
        () => f.get(member, seq, spins).i32(0).call(arrived).set(status),
      );
      f.get(status);
      f.if(() => f.get(status).op("return"));
      f.get(start, end).op("i32.lt_u");
      f.if(() => {
        f.get(member).mem("i32.load", MEMBER.inTable).get(member).mem("i32.load", MEMBER.size);
        f.get(member).mem("i32.load", MEMBER.outTable).get(member).mem("i32.load", MEMBER.size);
        f.get(start, end).get(member).mem("i32.load", MEMBER.context).get(kernel).callIndirect(typeIndex);
      });
      endCall(f, member, seq, spins, status);
    },
    "twoShot",
  );

  module.function(
    signature(11, 1),
    (f) => {
      const [member, seq, run, spins, endsAlone] = [f.param(0), f.param(1), f.param(7), f.param(8), f.param(9)];
      const endSpins = f.param(10);
      const status = f.local("i32");
      for (let i = 0; i < 7; i++) f.get(f.param(i));
      f.call(publish);
      byMessages(f, member);
      f.if(
        () => f.get(member, seq, endsAlone, spins).call(come).set(status),
        () => f.get(member, seq, spins, endsAlone).call(arrived).set(status),
      );
      f.get(status);
      f.if(() => f.get(status).op("return"));
      f.get(run, spins).call(machine.start);
      f.if(() => f.i32(IN_STRANDS).op("return"));
      f.get(endsAlone);
      f.if(() => f.i32(0).op("return"));
      endCall(f, member, seq, endSpins, status);
    },
    "runPlan",
  );
  return module.encode();
}
