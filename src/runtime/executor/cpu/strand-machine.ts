/**
 * The machine that runs the strands of one rank's plan, as WebAssembly functions beside the reduction kernels. Strands are
 * resumable: one whose wait is not met gives way to the rank's others; when all wait, the rank polls for a while and then
 * returns to JavaScript, which decides how to wait on. Nothing here blocks, allocates or calls JavaScript.
 *
 * What waits only for packets (`unpack`, `forward`, `reducePackets`) is no block-wide synchronisation (docs/semantics.md,
 * section 2): signals that are relaxed, and what ports do, may have to happen before the packets are there. A strand held
 * up by packets therefore executes such operations ahead, up to the next synchronisation.
 */
import type { FunctionBuilder, Local, ModuleBuilder } from "../wasm/assembler.ts";
import { COPY_KERNEL } from "../wasm/reduce-kernels.ts";
import {
  BARRIER,
  CODE,
  type Code,
  DATA,
  FAR,
  LOOP,
  RAISED,
  RECORD,
  RUN,
  SEMAPHORES,
  SIGNAL,
  STRAND,
  TILE_BYTES,
  WAIT,
  word,
} from "./image.ts";
import { addPacketMoves, type PacketMoves } from "./packet-moves.ts";
import { addStart } from "./straight-line.ts";
import { addLaunch } from "./strand-launch.ts";
import { addStrandLimits } from "./strand-limits.ts";
import { addStrandSignals, type StrandSignals } from "./strand-signals.ts";

/** What the module exports for the executor. */
export interface MachineExports {
  /** (run): counts a launch, whose number its packets carry; takes the ranks' scratch as it lies now; puts every strand at its beginning. */
  readonly launch: (run: number) => void;
  /** (run, spins) -> 0 when all strands have ended, 1 when all that are left wait. Polls for as long as `spins` polls of one word take. */
  readonly runStrands: (run: number, spins: number) => number;
}

interface MachineParts {
  /** Type of the kernels in the module's table: see `addReduceKernels`. */
  readonly kernelType: number;
  /** (to, from, bytes) */
  readonly copy: FunctionBuilder;
  /** (bell): wakes whoever sleeps. Absent: nobody does. */
  readonly ring?: FunctionBuilder;
}

/** The exports as functions to call from others of the module. */
interface MachineCode {
  /** (run, spins): `launch` and `runStrands`, or less where the plan allows it. */
  readonly start: FunctionBuilder;
}

/** Adds the machine to a module that has the reduction kernels. */
export function addStrandMachine(module: ModuleBuilder, parts: MachineParts): MachineCode {
  const packets = addPacketMoves(module);
  const limits = addStrandLimits(module);
  const signals = addStrandSignals(module, parts.ring);
  const step = addStep(module, parts, packets, limits, signals);
  const launch = addLaunch(module);
  const runStrands = addRun(module, signals.wake, step);
  return { start: addStart(module, { ...parts, launch, runStrands }) };
}

/** Runs the strands in turn until all have ended, or wait and the polls are used up. */
function addRun(module: ModuleBuilder, wake: FunctionBuilder, step: FunctionBuilder): FunctionBuilder {
  return module.function(
    { params: ["i32", "i32"], results: ["i32"] },
    (f) => {
      const [run, spins] = [f.param(0), f.param(1)];
      const [strand, end, open, moved] = f.locals("i32", "i32", "i32", "i32");
      const cost = f.local("i32");
      const ring = () => f.get(run).call(wake);
      f.get(run, spins).mem("i32.store", word(RUN.spins));
      f.loop(() => {
        f.get(run).mem("i32.load", word(RUN.strands)).tee(strand);
        f.get(run).mem("i32.load", word(RUN.numStrands)).i32(word(STRAND.words)).op("i32.mul", "i32.add").set(end);
        f.i32(0).set(open).i32(0).set(moved);
        f.block(() =>
          f.loop(() => {
            f.get(strand, end).op("i32.ge_u").brIf(1);
            f.get(strand).mem("i32.load", word(STRAND.done)).op("i32.eqz");
            f.if(() => {
              f.get(run, strand).call(step).get(moved).op("i32.or").set(moved);
              f.get(strand).mem("i32.load", word(STRAND.done)).op("i32.eqz").get(open).op("i32.or").set(open);
            });
            f.get(strand).i32(word(STRAND.words)).op("i32.add").set(strand).br(0);
          }),
        );
        f.get(open).op("i32.eqz");
        f.if(() => {
          ring();
          f.i32(0).op("return");
        });
        f.get(moved).brIf(0);
        ring();
        // A look at every strand takes as long as several polls of one word, in which spins are counted.
        f.get(run).mem("i32.load", word(RUN.numStrands)).i32(2).op("i32.shl").i32(4).op("i32.add").set(cost);
        f.get(run).mem("i32.load", word(RUN.spins)).tee(spins).get(cost).op("i32.lt_s");
        f.if(() => f.i32(1).op("return"));
        f.get(run).get(spins, cost).op("i32.sub").mem("i32.store", word(RUN.spins)).br(0);
      });
      f.i32(1);
    },
    "runStrands",
  );
}

/** (run, strand) -> whether it got on: executes a strand's records until one has to wait, or the last one. */
function addStep(
  module: ModuleBuilder,
  parts: MachineParts,
  packets: PacketMoves,
  limits: FunctionBuilder,
  signals: StrandSignals,
): FunctionBuilder {
  return module.function({ params: ["i32", "i32"], results: ["i32"] }, (f) => {
    const [run, strand] = [f.param(0), f.param(1)];
    const local = () => f.local("i32");
    const [pc, moved, at, left, begin, length] = [local(), local(), local(), local(), local(), local()];
    const [table, tile, ahead, source, x] = [local(), local(), local(), local(), local()];
    const operand = (index: number) => f.get(pc).mem("i32.load", word(index));
    const field = (index: number) => f.get(strand).mem("i32.load", word(index));
    const setting = (index: number) => f.get(run).mem("i32.load", word(index));
    const waits = () => f.get(strand, pc).mem("i32.store", word(STRAND.pc)).get(moved).op("return");
    const stored = () => f.get(run).i32(RAISED.stored).mem("i32.store", word(RUN.raised));
    const add = (target: Local, value: number) => f.get(target).i32(value).op("i32.add").set(target);
    /** Leaves the address of the range whose pair of words is at `at`, `twice` for packets. */
    const addressAt = (twice: boolean) => {
      f.get(at).mem("i32.load").mem("i32.load").get(at).mem("i32.load", 4);
      if (twice) f.i32(1).op("i32.shl");
      f.op("i32.add").get(begin);
      if (twice) f.i32(1).op("i32.shl");
      f.op("i32.add");
    };
    const firstRange = () => f.get(pc).i32(word(DATA.ranges)).op("i32.add").set(at);
    /** Repeats `body` `left` times, `at` going from range to range. */
    const eachRange = (body: () => void) =>
      f.block(() =>
        f.loop(() => {
          f.get(left).op("i32.eqz").brIf(1);
          body();
          add(at, 8);
          f.get(left).i32(1).op("i32.sub").set(left).br(0);
        }),
      );
    const fillTable = (which: number, count: number) => {
      setting(which).set(table);
      operand(count).set(left);
      eachRange(() => {
        f.get(table);
        addressAt(false);
        f.mem("i32.store");
        add(table, 4);
      });
    };
    /** Sets `begin` and `length`, and goes on with the next record when there is nothing to do. */
    const limited = (next: (depth: number) => void) => {
      f.get(run, strand, pc).call(limits).op("i32.eqz");
      f.if(() => next(1));
      setting(RUN.begin).tee(begin);
      setting(RUN.end);
      // end - begin, of which begin came first.
      f.set(length).set(x).get(length).get(x).op("i32.sub").set(length);
    };

    /** What the strand does while an operation waits for packets; then leaves. */
    const runAhead = () => {
      field(STRAND.ahead).set(ahead);
      f.get(ahead, pc).op("i32.le_u");
      f.if(() => operand(RECORD.next).set(ahead));
      f.block(() =>
        f.loop(() => {
          // A relaxed signal is one that needs nothing but to be counted; data stays behind what waits.
          f.get(ahead).mem("i32.load").set(x);
          f.get(x).i32(CODE.signal).op("i32.eq").get(ahead).mem("i32.load", word(SIGNAL.relaxed)).op("i32.and");
          f.if(
            () => {
              f.get(ahead).i32(word(SIGNAL.addresses)).op("i32.add").set(at);
              f.get(ahead).mem("i32.load", word(SIGNAL.count)).set(left);
              raiseAll();
              f.i32(1).set(moved);
            },
            () => {
              f.get(x).i32(CODE.copy).op("i32.ge_s").get(x).i32(CODE.reducePackets).op("i32.le_s", "i32.and");
              f.get(x).i32(CODE.far).op("i32.eq", "i32.or", "i32.eqz").brIf(2);
            },
          );
          f.get(ahead).mem("i32.load", word(RECORD.next)).set(ahead).br(0);
        }),
      );
      f.get(strand, ahead).mem("i32.store", word(STRAND.ahead));
      waits();
    };
    /** Raises the `left` counters whose addresses stand from `at` on. */
    const raiseAll = () => f.get(run, at, left).call(signals.raise);

    /** Leaves the record to JavaScript, and stays at it until that is done. */
    const byJavaScript = (next: (depth: number) => void) => {
      field(STRAND.far).i32(FAR.done).op("i32.eq");
      f.if(() => {
        f.get(strand).i32(FAR.none).mem("i32.store", word(STRAND.far));
        next(1);
      });
      field(STRAND.far).op("i32.eqz");
      f.if(() => f.get(strand).i32(FAR.asked).mem("i32.store", word(STRAND.far)));
      waits();
    };

    const cases: Record<Code, (next: (depth: number) => void) => void> = {
      end: () => {
        f.get(strand).i32(1).mem("i32.store", word(STRAND.done)).i32(1).op("return");
      },
      copy: (next) => {
        limited(next);
        firstRange();
        addressAt(false);
        f.set(source);
        add(at, 8);
        addressAt(false);
        // In place, what is stored to its own place is there.
        f.tee(x).get(source).op("i32.ne");
        f.if(() => f.get(x, source, length).call(parts.copy));
      },
      move: (next) => {
        limited(next);
        firstRange();
        fillTable(RUN.inTable, DATA.numIn);
        // A copy need not be stored where it comes from: without this, buffers in place would be written once more.
        f.i32(0).set(source);
        operand(DATA.kernel).i32(COPY_KERNEL).op("i32.eq");
        operand(DATA.numIn).i32(1).op("i32.eq", "i32.and");
        f.if(() => {
          setting(RUN.inTable).mem("i32.load").set(source);
        });
        setting(RUN.outTable).set(table);
        operand(DATA.numOut).set(left);
        eachRange(() => {
          f.get(table);
          addressAt(false);
          f.tee(x)
            .mem("i32.store")
            .get(x, source)
            .op("i32.ne")
            .i32(2)
            .op("i32.shl")
            .get(table)
            .op("i32.add")
            .set(table);
        });
        f.get(table);
        setting(RUN.outTable).op("i32.sub").i32(2).op("i32.shr_u").tee(left);
        f.if(() => {
          setting(RUN.inTable);
          operand(DATA.numIn);
          setting(RUN.outTable).get(left).i32(0).get(length);
          setting(RUN.kernelContext);
          operand(DATA.kernel).callIndirect(parts.kernelType);
        });
      },
      pack: (next) => {
        limited(next);
        firstRange();
        addressAt(false);
        f.set(source);
        add(at, 8);
        addressAt(true);
        f.get(source, length);
        setting(RUN.flag).call(packets.pack);
        stored();
      },
      unpack: (next) => {
        limited(next);
        firstRange();
        addressAt(true);
        f.tee(source).get(length);
        setting(RUN.flag).call(packets.ready).op("i32.eqz");
        f.if(runAhead);
        add(at, 8);
        addressAt(false);
        f.get(source, length).call(packets.unpack);
      },
      forward: (next) => {
        limited(next);
        firstRange();
        addressAt(true);
        f.set(source);
        operand(DATA.raw).op("i32.eqz");
        f.if(() => {
          f.get(source, length);
          setting(RUN.flag).call(packets.ready).op("i32.eqz");
          f.if(runAhead);
        });
        add(at, 8);
        operand(DATA.numOut).set(left);
        eachRange(() => {
          addressAt(true);
          f.get(source).get(length).i32(3).op("i32.add").i32(-4).op("i32.and").i32(1).op("i32.shl").call(parts.copy);
        });
        stored();
      },
      reducePackets: (next) => {
        limited(next);
        // All packets have to be there before anything is combined: a strand that comes back starts again.
        firstRange();
        add(at, 8);
        operand(DATA.numIn).i32(1).op("i32.sub").set(left);
        eachRange(() => {
          addressAt(true);
          f.get(length);
          setting(RUN.flag).call(packets.ready).op("i32.eqz");
          f.if(runAhead);
        });
        const [rest, now, flying] = f.locals("i32", "i32", "i32");
        f.get(length).set(rest);
        f.loop(() => {
          f.get(rest).i32(TILE_BYTES).get(rest).i32(TILE_BYTES).op("i32.lt_u", "select").set(now);
          setting(RUN.inTable).set(table);
          setting(RUN.tiles).set(tile);
          firstRange();
          f.get(table);
          addressAt(false);
          f.mem("i32.store");
          add(at, 8);
          operand(DATA.numIn).i32(1).op("i32.sub").set(left);
          eachRange(() => {
            addressAt(true);
            f.set(flying).get(tile, flying, now).call(packets.unpack);
            add(table, 4);
            f.get(table, tile).mem("i32.store");
            add(tile, TILE_BYTES);
          });
          fillTable(RUN.outTable, DATA.numOut);
          setting(RUN.inTable);
          operand(DATA.numIn);
          setting(RUN.outTable);
          operand(DATA.numOut);
          f.i32(0).get(now);
          setting(RUN.kernelContext);
          operand(DATA.kernel).callIndirect(parts.kernelType);
          f.get(begin, now).op("i32.add").set(begin);
          f.get(rest, now).op("i32.sub").tee(rest).brIf(0);
        });
      },
      signal: (next) => {
        // It may have been executed ahead.
        f.get(pc);
        field(STRAND.ahead).op("i32.lt_u");
        f.if(() => next(1));
        f.get(pc).i32(word(SIGNAL.addresses)).op("i32.add").set(at);
        operand(SIGNAL.count).set(left);
        raiseAll();
      },
      wait: () => {
        const triples = () => {
          f.get(pc).i32(word(WAIT.entries)).op("i32.add").set(at);
          operand(WAIT.count).set(left);
        };
        const each = (body: () => void) =>
          f.block(() =>
            f.loop(() => {
              f.get(left).op("i32.eqz").brIf(1);
              body();
              add(at, 12);
              f.get(left).i32(1).op("i32.sub").set(left).br(0);
            }),
          );
        triples();
        each(() => {
          // raised - taken, modulo 2^32
          f.get(at).mem("i32.load").mem("i32.atomic.load").get(at).mem("i32.load", 4).mem("i32.load").op("i32.sub");
          f.get(at).mem("i32.load", 8).op("i32.lt_s");
          f.if(() => {
            f.get(run, at).call(signals.linger).op("i32.eqz");
            f.if(waits);
          });
        });
        triples();
        each(() => {
          f.get(at).mem("i32.load", 4).set(x);
          f.get(x, x).mem("i32.load").get(at).mem("i32.load", 8).op("i32.add").mem("i32.store");
        });
      },
      barrier: () => {
        operand(BARRIER.address).set(at);
        field(STRAND.barrier);
        f.if(
          () => {
            field(STRAND.barrier).get(at).mem("i32.load", 4).i32(1).op("i32.add", "i32.eq");
            f.if(waits);
            f.get(strand).i32(0).mem("i32.store", word(STRAND.barrier));
          },
          () => {
            f.get(at).mem("i32.load").i32(1).op("i32.add").tee(x);
            operand(BARRIER.numStrands).op("i32.lt_u");
            f.if(() => {
              f.get(at, x).mem("i32.store");
              f.get(strand).get(at).mem("i32.load", 4).i32(1).op("i32.add").mem("i32.store", word(STRAND.barrier));
              // To have come is to get on: the others may be able to, now.
              f.i32(1).set(moved);
              waits();
            });
            f.get(at).i32(0).mem("i32.store");
            f.get(at, at).mem("i32.load", 4).i32(1).op("i32.add").mem("i32.store", 4);
          },
        );
      },
      acquire: () => {
        const pairs = (body: () => void) => {
          f.get(pc).i32(word(SEMAPHORES.entries)).op("i32.add").set(at);
          operand(SEMAPHORES.count).set(left);
          eachRange(body);
        };
        pairs(() => {
          f.get(at).mem("i32.load").mem("i32.load").get(at).mem("i32.load", 4).op("i32.lt_s");
          f.if(waits);
        });
        pairs(() => {
          f.get(at).mem("i32.load").set(x);
          f.get(x, x).mem("i32.load").get(at).mem("i32.load", 4).op("i32.sub").mem("i32.store");
        });
      },
      release: () => {
        f.get(pc).i32(word(SEMAPHORES.entries)).op("i32.add").set(at);
        operand(SEMAPHORES.count).set(left);
        eachRange(() => {
          f.get(at).mem("i32.load").set(x);
          f.get(x, x).mem("i32.load").get(at).mem("i32.load", 4).op("i32.add").mem("i32.store");
        });
      },
      loop: (next) => {
        f.get(strand).i32(0).mem("i32.store", word(STRAND.unitStart));
        f.get(strand).i32(0).mem("i32.store", word(STRAND.round));
        operand(LOOP.rounds).op("i32.eqz");
        f.if(() => {
          operand(LOOP.after).set(pc);
          next(-1);
        });
        f.get(strand);
        operand(LOOP.unit).mem("i32.store", word(STRAND.unit));
      },
      repeat: (next) => {
        field(STRAND.round).i32(1).op("i32.add").set(x);
        f.get(strand, x).mem("i32.store", word(STRAND.round));
        // A round may go ahead only of itself.
        f.get(strand).i32(0).mem("i32.store", word(STRAND.ahead));
        f.get(x);
        operand(LOOP.rounds).op("i32.lt_u");
        f.if(() => {
          f.get(strand);
          field(STRAND.unitStart);
          operand(LOOP.unit).op("i32.add").mem("i32.store", word(STRAND.unitStart));
          operand(LOOP.after).set(pc);
          next(-1);
        });
        f.get(strand).i32(-1).mem("i32.store", word(STRAND.unit));
      },
      far: byJavaScript,
      fence: byJavaScript,
    };

    field(STRAND.pc).set(pc);
    const names = (Object.keys(CODE) as Code[]).sort((a, b) => CODE[a] - CODE[b]);
    const nest = (index: number): void => {
      if (index < 0) {
        f.get(pc).mem("i32.load");
        f.brTable(
          names.map((_, i) => i),
          0,
        );
        return;
      }
      f.block(() => nest(index - 1));
      // Here, `names.length - 1 - index` blocks and the loop are around.
      const outer = names.length - 1 - index;
      cases[names[index] as Code]((depth) => {
        // Within one `if` of the case. A negative number: pc is where to go on.
        if (depth >= 0) operand(RECORD.next).set(pc);
        f.i32(1)
          .set(moved)
          .br(outer + 1);
      });
      operand(RECORD.next).set(pc).i32(1).set(moved).br(outer);
    };
    f.loop(() => nest(names.length - 1));
    f.i32(1);
  });
}
