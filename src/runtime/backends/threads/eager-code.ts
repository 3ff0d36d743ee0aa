/**
 * Small collectives as messages, in WebAssembly. A message is data behind a flag (the number of the call, and a hash of all
 * calls so far), as in NCCL's "LL" protocol but for one flag per message: whoever sees the flag sees the data. Messages lie
 * in rings that one member writes and others poll, of three kinds (`WAY` in layout.ts): a lane from each member to each
 * other one, a ring of each member for all others, and a pair of boxes of each member for calls in which everybody hears of
 * everybody, which need no acknowledgement: who writes the next but one has heard that all have read this one.
 *
 * A sender is done when its data is in a ring, so roots do not wait for receivers; it waits where a ring is full. A larger part of
 * a scatter stays where it is: its message is its address, and who sent it waits until it was taken. Larger parts of a gather are
 * written to where the root's message says, all at the same time, and need no acknowledgement either. A call
 * does what the member's task says (`TASK` in layout.ts), and keeps how far it is, so that it can be called again with
 * the same arguments after any wait.
 *
 * Status: 0 done; 1 + p rank p's message is missing; `RING_FULL` + p rank p has not taken its messages; -1 - p rank p's
 * call differs from ours.
 */
import type { FunctionBuilder, Local, ModuleBuilder } from "../../executor/internal.ts";
import { addEagerCall, FINISH, flagFrom, noteTaken, ringSleepers, STAGE, showMessage } from "./eager-call.ts";
import { COPY_ENTRY, DIRECT, LINE, MEMBER, RING, TASK, WAY } from "./layout.ts";

export const RING_FULL = 0x10000;
interface EagerParts {
  readonly kernelType: number;
  /** (to, from, bytes) */
  readonly copy: FunctionBuilder;
  /** The same for data that goes into a message. */
  readonly fill: FunctionBuilder;
  /** (member) */
  readonly ring: FunctionBuilder;
  /** Announces a task's call. */
  readonly publish: (f: FunctionBuilder, member: Local, task: Local, seq: Local) => void;
}

/** (member, seq) -> what a message carries: the number of the call, and a hash of all calls up to it above it. */
export function addFlagOf(module: ModuleBuilder): FunctionBuilder {
  return module.function({ params: ["i32", "i32"], results: ["i64"] }, (f) => {
    const [member, seq] = [f.param(0), f.param(1)];
    flagFrom(f, member, seq);
  });
}

/** Adds `eager(member, task, seq, spins) -> status` and `eagerCall(member, task, seq, high, spins) -> status`. */
export function addEager(module: ModuleBuilder, parts: EagerParts): void {
  const finish = addFinishing(module, parts);
  const relay = addRelay(module, finish);
  const eager = module.function(
    { params: ["i32", "i32", "i32", "i32"], results: ["i32"] },
    (f) => {
      const [member, task, seq, spins] = [f.param(0), f.param(1), f.param(2), f.param(3)];
      const [stage, status, flag] = f.locals("i32", "i32", "i64");
      const setting = (field: number) => f.get(task).mem("i32.load", field);
      const isDirect = (how: number) => setting(TASK.direct).i32(how).op("i32.eq");
      /** Leaves the function with the status on the stack; who calls it again comes in where it left. */
      const leaveAt = (at: number) => {
        f.set(status);
        f.get(member).i32(at).mem("i32.store", MEMBER.stage).get(status).op("return");
      };
      f.get(member).mem("i32.load", MEMBER.stage).tee(stage).op("i32.eqz");
      f.if(() => parts.publish(f, member, task, seq));
      flagFrom(f, member, seq);
      f.set(flag);
      f.get(stage).i32(STAGE.sent).op("i32.ne");
      f.if(() => {
        setting(TASK.sendsOwn);
        f.if(() => send(f, task, flag, spins, parts, () => leaveAt(STAGE.begun)));
        setting(TASK.postBytes);
        f.if(() => post(f, member, task, flag, spins, parts, () => leaveAt(STAGE.begun)));
        // Where nobody answers, or not without this message, nobody else will wake them.
        setting(TASK.numReceives).op("i32.eqz");
        isDirect(DIRECT.bring).op("i32.or");
        f.if(() => ringSleepers(f, member, parts.ring));
        isDirect(DIRECT.bring);
        f.if(() => {
          setting(TASK.postBytes);
          f.if(() => f.get(member, task, task).mem("i32.load", TASK.output).call(finish));
        });
      });
      setting(TASK.numReceives);
      f.if(() => receive(f, member, task, flag, spins, () => leaveAt(STAGE.sent)));
      isDirect(DIRECT.bring);
      f.if(() => noteAllTaken(f, member, task));
      setting(TASK.relays);
      f.if(
        () => {
          f.get(member, task, flag, spins).call(relay).tee(status);
          f.if(() => {
            f.get(status);
            leaveAt(STAGE.sent);
          });
        },
        () => {
          isDirect(DIRECT.bring).op("i32.eqz");
          f.if(() => f.get(member, task, task).mem("i32.load", TASK.output).call(finish));
        },
      );
      setting(TASK.numReceives);
      f.if(() => {
        take(f, task, seq);
        ringSleepers(f, member, parts.ring);
      });
      isDirect(DIRECT.take);
      f.if(() => {
        setting(TASK.numReceives).op("i32.eqz");
        f.if(() => awaitTaken(f, member, task, spins, () => leaveAt(STAGE.sent)));
      });
      f.get(stage);
      f.if(() => f.get(member).i32(STAGE.none).mem("i32.store", MEMBER.stage));
      f.i32(0);
    },
    "eager",
  );
  addEagerCall(module, { ...parts, eager, finish });
}

/** Repeats `body` for each rank of the list at `at`, which moves on; `left` counts. */
function eachPeer(f: FunctionBuilder, at: Local, left: Local, peer: Local, body: () => void): void {
  f.loop(() => {
    f.get(at).mem("i32.load").set(peer);
    body();
    f.get(at).i32(4).op("i32.add").set(at);
    f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
  });
}

/** Loads what the rings are like through which a call sends, or receives, into locals. */
function ringOf(f: FunctionBuilder, task: Local, from: number = TASK.way) {
  const way = f.local("i32");
  const field = (offset: number) => {
    const local = f.local("i32");
    f.get(way).mem("i32.load", offset).set(local);
    return local;
  };
  f.get(task).mem("i32.load", from).set(way);
  return { field };
}

/** Leaves the address of a slot of the ring that begins at the address on the stack. */
function slotAt(f: FunctionBuilder, number: Local, mask: Local, slotBytes: Local): void {
  f.get(number, mask).op("i32.and").get(slotBytes).op("i32.mul", "i32.add");
}

/** Loads what a member's lane to the one member to whom it sends is like into locals. */
function laneOf(f: FunctionBuilder, task: Local, spins: Local) {
  const { field } = ringOf(f, task);
  const [rings, ringStride, slotBytes] = [field(WAY.out), field(WAY.outStride), field(WAY.slotBytes)];
  const [mask, states, acks] = [field(WAY.mask), field(WAY.state), field(WAY.acksIn)];
  const [peer, state, sent, slot] = f.locals("i32", "i32", "i32", "i32");
  f.get(task).mem("i32.load", TASK.sendTo).set(peer);
  f.get(states).get(peer).i32(4).op("i32.shl", "i32.add").tee(state).mem("i32.load", RING.sent).set(sent);
  const hasRoom = () => {
    f.get(sent, state).mem("i32.load", RING.acknowledged).op("i32.sub").get(mask).op("i32.le_s");
  };
  /** Sets the local of the next slot. `leave`: where there is no room, with the status on the stack. */
  const awaitSlot = (leave: () => void) => {
    f.block(() =>
      f.loop(() => {
        hasRoom();
        f.brIf(1);
        f.get(state).get(acks, peer).i32(LINE).op("i32.mul", "i32.add").mem("i32.atomic.load");
        f.mem("i32.store", RING.acknowledged);
        hasRoom();
        f.brIf(1);
        f.get(spins).i32(1).op("i32.le_s");
        f.if(() => {
          f.get(peer).i32(RING_FULL).op("i32.add");
          leave();
        });
        f.get(spins).i32(1).op("i32.sub").set(spins).br(0);
      }),
    );
    f.get(rings).get(peer, ringStride).op("i32.mul", "i32.add");
    slotAt(f, sent, mask, slotBytes);
    f.set(slot);
  };
  const data = () => f.get(slot).i32(RING.data).op("i32.add");
  const show = (flag: Local) => showMessage(f, slot, flag, state, sent);
  return { peer, slot, awaitSlot, data, show };
}

/** Sends a part to one member. `leave`: where its lane is full, with the status on the stack. */
function send(f: FunctionBuilder, task: Local, flag: Local, spins: Local, parts: EagerParts, leave: () => void): void {
  const { peer, slot, awaitSlot, data, show } = laneOf(f, task, spins);
  awaitSlot(leave);
  const [from] = f.locals("i32");
  f.get(task).mem("i32.load", TASK.input).get(peer, task).mem("i32.load", TASK.inputStride);
  f.op("i32.mul", "i32.add").set(from);
  f.get(task).mem("i32.load", TASK.direct);
  f.if(
    () => f.get(slot, from).mem("i32.store", RING.address),
    () => data().get(from, task).mem("i32.load", TASK.partBytes).call(parts.fill),
  );
  show(flag);
}

/**
 * (member, task, flag, spins) -> status: sends what came and this member's own part, reduced or one behind the other; or brings its
 * part to where the one that it sends to said, and tells it so.
 */
function addRelay(module: ModuleBuilder, finish: FunctionBuilder): FunctionBuilder {
  return module.function({ params: ["i32", "i32", "i64", "i32"], results: ["i32"] }, (f) => {
    const [member, task, flag, spins] = [f.param(0), f.param(1), f.param(2), f.param(3)];
    const { peer, awaitSlot, data, show } = laneOf(f, task, spins);
    const [to] = f.locals("i32");
    awaitSlot(() => f.op("return"));
    data().set(to).get(task).mem("i32.load", TASK.direct);
    f.if(() =>
      f.get(member).mem("i32.load", MEMBER.inTable).get(peer).i32(2).op("i32.shl", "i32.add").mem("i32.load").set(to),
    );
    f.get(member, task, to).call(finish);
    show(flag);
    f.i32(0);
  });
}

/** Writes the parts of all others into this member's own ring. `leave`: where it is full, with the status on the stack. */
function post(
  f: FunctionBuilder,
  member: Local,
  task: Local,
  flag: Local,
  spins: Local,
  parts: EagerParts,
  leave: () => void,
): void {
  const [state, sent, slot] = f.locals("i32", "i32", "i32");
  const [at, left, peer, most, who, behind] = f.locals("i32", "i32", "i32", "i32", "i32", "i32");
  const { field } = ringOf(f, task);
  const [ring, slotBytes, mask] = [field(WAY.out), field(WAY.slotBytes), field(WAY.mask)];
  const [states, acks] = [field(WAY.state), field(WAY.acksIn)];
  f.get(states).get(member).mem("i32.load", MEMBER.me).i32(4).op("i32.shl", "i32.add").tee(state);
  f.mem("i32.load", RING.sent).set(sent);
  f.get(acks);
  f.if(() =>
    f.block(() =>
      f.loop(() => {
        f.get(sent, state).mem("i32.load", RING.acknowledged).op("i32.sub").get(mask).op("i32.le_s").brIf(1);
        // Room is what the slowest of all leaves.
        f.i32(0).set(most);
        f.get(task).mem("i32.load", TASK.receiveList).set(at);
        f.get(member).mem("i32.load", MEMBER.size).i32(1).op("i32.sub").set(left);
        eachPeer(f, at, left, peer, () => {
          f.get(sent).get(acks, peer).i32(LINE).op("i32.mul", "i32.add").mem("i32.atomic.load").op("i32.sub");
          f.tee(behind).get(most).op("i32.gt_s");
          f.if(() => f.get(behind).set(most).get(peer).set(who));
        });
        f.get(state).get(sent, most).op("i32.sub").mem("i32.store", RING.acknowledged);
        f.get(most, mask).op("i32.le_s").brIf(1);
        f.get(spins).i32(1).op("i32.le_s");
        f.if(() => {
          f.get(who).i32(RING_FULL).op("i32.add");
          leave();
        });
        f.get(spins).i32(1).op("i32.sub").set(spins).br(0);
      }),
    ),
  );
  f.get(ring);
  slotAt(f, sent, mask, slotBytes);
  f.set(slot).get(task).mem("i32.load", TASK.direct).tee(who);
  f.if(
    () => {
      f.get(slot).get(task).mem("i32.load", TASK.input).get(task).mem("i32.load", TASK.output);
      f.get(who).i32(DIRECT.take).op("i32.eq", "select").mem("i32.store", RING.address);
    },
    () => {
      f.get(slot).i32(RING.data).op("i32.add").get(task).mem("i32.load", TASK.input);
      f.get(task).mem("i32.load", TASK.postBytes).call(parts.fill);
    },
  );
  showMessage(f, slot, flag, state, sent);
}

/**
 * Waits for a message from each of a list; their addresses go to the table of inputs. `leave`: where one is missing or differs,
 * with the status on the stack.
 */
function receive(f: FunctionBuilder, member: Local, task: Local, flag: Local, spins: Local, leave: () => void): void {
  const [at, left, peer, state, slot] = f.locals("i32", "i32", "i32", "i32", "i32");
  const [table, taken, own] = f.locals("i32", "i32", "i32");
  const [theirs, before, seen, dense, place, direct] = f.locals("i32", "i32", "i64", "i32", "i32", "i32");
  const last = f.local("i32");
  const { field } = ringOf(f, task, TASK.wayIn);
  f.get(task).mem("i32.load", TASK.isDense).set(dense);
  const [rings, ringStride, slotBytes] = [field(WAY.in), field(WAY.inStride), field(WAY.slotBytes)];
  const [mask, states] = [field(WAY.mask), field(WAY.state)];
  f.get(member).mem("i32.load", MEMBER.inTable).set(table);
  f.get(task).mem("i32.load", TASK.ownOffset).set(own);
  f.get(task).mem("i32.load", TASK.direct).set(direct);
  f.get(task).mem("i32.load", TASK.polledToo).set(last);
  f.get(task).mem("i32.load", TASK.receiveList).set(at);
  f.get(task).mem("i32.load", TASK.numReceives).set(left);
  const leaveAsOther = () => {
    f.i32(-1).get(peer).op("i32.sub");
    leave();
  };
  eachPeer(f, at, left, peer, () => {
    f.get(states).get(peer).i32(4).op("i32.shl", "i32.add").tee(state).mem("i32.load", RING.taken).set(taken);
    f.get(rings).get(peer, ringStride).op("i32.mul", "i32.add");
    slotAt(f, taken, mask, slotBytes);
    f.set(slot);
    f.block(() =>
      f.loop(() => {
        f.get(slot).mem("i64.atomic.load").tee(seen).get(flag).op("i64.eq").brIf(1);
        f.get(slot, last).op("i32.add").mem("i64.atomic.load").op("drop");
        f.get(seen).op("i32.wrap_i64").get(flag).op("i32.wrap_i64", "i32.eq");
        f.if(leaveAsOther);
        f.get(spins).i32(1).op("i32.le_s");
        f.if(() => {
          // A message of a call before this one that nobody took: that call differed.
          f.get(seen).op("i32.wrap_i64").set(theirs).get(state).mem("i32.load", RING.takenStamp).set(before);
          f.get(theirs, before).op("i32.sub").i32(0).op("i32.gt_s");
          f.get(flag).op("i32.wrap_i64").get(theirs).op("i32.sub").i32(0).op("i32.gt_s", "i32.and");
          f.get(theirs).i32(0).op("i32.ne", "i32.and");
          f.if(leaveAsOther);
          f.get(peer).i32(1).op("i32.add");
          leave();
        });
        f.get(spins).i32(1).op("i32.sub").set(spins).br(0);
      }),
    );
    f.get(place).i32(1).op("i32.add").tee(place).get(peer, dense).op("select").set(peer);
    f.get(table).get(peer).i32(2).op("i32.shl", "i32.add");
    f.get(slot).mem("i32.load", RING.address).get(slot).i32(RING.data).op("i32.add").get(direct).op("select");
    f.get(own).op("i32.add").mem("i32.store");
  });
}

/**
 * Notes that all was taken that a member sent: who sends it a message of a gather without data has ended the calls before, and read
 * the root's message of this one. So these calls acknowledge nothing.
 */
function noteAllTaken(f: FunctionBuilder, member: Local, task: Local): void {
  const [state, receiver] = f.locals("i32", "i32");
  const { field } = ringOf(f, task);
  const states = field(WAY.state);
  f.get(task).mem("i32.load", TASK.sendTo).tee(receiver).get(member).mem("i32.load", MEMBER.me);
  f.get(receiver).i32(0).op("i32.ge_s", "select").i32(4).op("i32.shl").get(states).op("i32.add").tee(state);
  f.get(state).mem("i32.load", RING.sent).mem("i32.store", RING.acknowledged);
}

/** Counts the messages of a call as taken, and tells their senders now and then. */
function take(f: FunctionBuilder, task: Local, seq: Local): void {
  const [at, left, peer, state, taken] = f.locals("i32", "i32", "i32", "i32", "i32");
  const { field } = ringOf(f, task, TASK.wayIn);
  const [states, acks, ackStride] = [field(WAY.state), field(WAY.acksOut), field(WAY.ackStride)];
  const direct = f.local("i32");
  f.get(task).mem("i32.load", TASK.direct).set(direct);
  f.get(task).mem("i32.load", TASK.receiveList).set(at);
  f.get(task).mem("i32.load", TASK.numReceives).set(left);
  eachPeer(f, at, left, peer, () => {
    f.get(states).get(peer).i32(4).op("i32.shl", "i32.add").tee(state);
    f.mem("i32.load", RING.taken).i32(1).op("i32.add").set(taken);
    noteTaken(f, state, taken, seq);
    f.get(taken).i32(RING.acknowledgeEvery - 1);
    f.op("i32.and", "i32.eqz").get(direct).i32(DIRECT.take).op("i32.eq", "i32.or");
    f.get(direct).i32(DIRECT.bring).op("i32.ne", "i32.and").get(acks).i32(0).op("i32.ne", "i32.and");
    f.if(() => f.get(acks).get(peer, ackStride).op("i32.mul", "i32.add").get(taken).release("i32"));
  });
}

/** Waits until those to whom a member sent have taken what it sent. `leave`: with the status on the stack where one has not. */
function awaitTaken(f: FunctionBuilder, member: Local, task: Local, spins: Local, leave: () => void): void {
  const [at, left, peer, state, sent] = f.locals("i32", "i32", "i32", "i32", "i32");
  const { field } = ringOf(f, task);
  const [states, acks] = [field(WAY.state), field(WAY.acksIn)];
  f.get(task).mem("i32.load", TASK.sendsOwn);
  f.if(
    () => {
      f.get(task).i32(TASK.sendTo).op("i32.add").tee(at).mem("i32.load").set(state);
      f.i32(1).set(left);
    },
    () => {
      f.get(task).mem("i32.load", TASK.receiveList).set(at);
      f.get(member).mem("i32.load", MEMBER.me).set(state).get(member).mem("i32.load", MEMBER.size);
      f.i32(1).op("i32.sub").set(left);
    },
  );
  f.get(states, state).i32(4).op("i32.shl", "i32.add").tee(state).mem("i32.load", RING.sent).set(sent);
  eachPeer(f, at, left, peer, () => {
    f.block(() =>
      f.loop(() => {
        f.get(acks, peer).i32(LINE).op("i32.mul", "i32.add").mem("i32.atomic.load").get(sent).op("i32.eq").brIf(1);
        f.get(spins).i32(1).op("i32.le_s");
        f.if(() => {
          f.get(peer).i32(RING_FULL).op("i32.add");
          leave();
        });
        f.get(spins).i32(1).op("i32.sub").set(spins).br(0);
      }),
    );
  });
  f.get(state, sent).mem("i32.store", RING.acknowledged);
}

/** (member, task, output): what is done when everything came. */
function addFinishing(module: ModuleBuilder, parts: EagerParts): FunctionBuilder {
  return module.function({ params: ["i32", "i32", "i32"], results: [] }, (f) => {
    const [member, task, output] = [f.param(0), f.param(1), f.param(2)];
    const [kind, table, me, own, n] = f.locals("i32", "i32", "i32", "i32", "i32");
    const [at, left, to, from] = f.locals("i32", "i32", "i32", "i32");
    const setting = (field: number) => f.get(task).mem("i32.load", field);
    setting(TASK.finish).tee(kind).i32(FINISH.nothing).op("i32.eq");
    f.if(() => f.op("return"));
    f.get(member).mem("i32.load", MEMBER.inTable).set(table);
    f.get(member).mem("i32.load", MEMBER.me).set(me);
    f.get(member).mem("i32.load", MEMBER.size).set(n);
    setting(TASK.input).get(me);
    setting(TASK.inputStride).op("i32.mul", "i32.add").set(own);
    setting(TASK.isDense);
    f.if(() => {
      f.i32(0).set(me);
      setting(TASK.numReceives).i32(1).op("i32.add").set(n);
    });
    f.get(table, me).i32(2).op("i32.shl", "i32.add").get(own).mem("i32.store");
    f.get(kind).i32(0).op("i32.ge_s");
    f.if(() => {
      f.get(member).mem("i32.load", MEMBER.outTable).get(output).mem("i32.store");
      f.get(table, n);
      f.get(member).mem("i32.load", MEMBER.outTable);
      f.i32(1).i32(0);
      setting(TASK.partBytes);
      f.get(member).mem("i32.load", MEMBER.context);
      f.get(kind).callIndirect(parts.kernelType).op("return");
    });
    setting(TASK.copies).set(at);
    setting(TASK.numCopies).set(left);
    const entry = (field: number) => f.get(at).mem("i32.load", field);
    f.loop(() => {
      f.get(output);
      entry(COPY_ENTRY.to).op("i32.add").set(to);
      f.get(table);
      entry(COPY_ENTRY.place).i32(2).op("i32.shl", "i32.add").mem("i32.load");
      entry(COPY_ENTRY.from).op("i32.add").tee(from).get(to).op("i32.ne");
      f.if(() => {
        f.get(to, from);
        entry(COPY_ENTRY.bytes).call(parts.copy);
      });
      f.get(at).i32(COPY_ENTRY.sizeBytes).op("i32.add").set(at);
      f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
    });
  });
}
