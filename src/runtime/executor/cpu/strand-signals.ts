/**
 * How the strand machine raises counters of other ranks, wakes those that sleep, and waits for its own: as functions beside
 * the machine (`strand-machine.ts`).
 */
import type { FunctionBuilder, ModuleBuilder } from "../wasm/assembler.ts";
import { RAISED, RUN, WAIT_ENTRY, word } from "./image.ts";

export interface StrandSignals {
  /** (run, at, count): adds one to each of the counters whose addresses stand from `at` on. */
  readonly raise: FunctionBuilder;
  /** (run): wakes sleepers, when a counter was raised or packets were stored since this was called last. */
  readonly wake: FunctionBuilder;
  /** (run, entry) -> whether the counter of an entry of a wait is high enough, after polls where nothing else can be done. */
  readonly linger: FunctionBuilder;
}

/** @param ring (bell): wakes whoever sleeps; absent where nobody does */
export function addStrandSignals(module: ModuleBuilder, ring: FunctionBuilder | undefined): StrandSignals {
  const wake = addWake(module, ring);
  return { raise: addRaise(module), wake, linger: addLinger(module, wake) };
}

function addRaise(module: ModuleBuilder): FunctionBuilder {
  return module.function({ params: ["i32", "i32", "i32"], results: [] }, (f) => {
    const [run, at, left] = [f.param(0), f.param(1), f.param(2)];
    const counter = f.local("i32");
    const raised = () => f.get(at).mem("i32.load").tee(counter).get(counter).mem("i32.load").i32(1).op("i32.add");
    f.get(left).op("i32.eqz");
    f.if(() => f.op("return"));
    f.get(left).i32(1).op("i32.gt_u");
    f.if(() => {
      // A counter is raised by one thread alone. One fence for all: an atomic addition each would wait for each one's line.
      f.fence();
      f.loop(() => {
        raised().mem("i32.store");
        f.get(at).i32(4).op("i32.add").set(at);
        f.get(left).i32(1).op("i32.sub").tee(left).i32(1).op("i32.gt_u").brIf(0);
      });
    });
    // The last one is a fence of its own: all stores before it are out when it is, and it is before sleepers are looked for.
    raised().mem("i32.atomic.store");
    f.get(run).i32(RAISED.fenced).mem("i32.store", word(RUN.raised));
  });
}

function addWake(module: ModuleBuilder, ring: FunctionBuilder | undefined): FunctionBuilder {
  return module.function({ params: ["i32"], results: [] }, (f) => {
    const run = f.param(0);
    const raised = f.local("i32");
    f.get(run).mem("i32.load", word(RUN.raised)).tee(raised).op("i32.eqz");
    f.if(() => f.op("return"));
    f.get(run).i32(RAISED.no).mem("i32.store", word(RUN.raised));
    f.get(raised).i32(RAISED.stored).op("i32.eq");
    // Packets are plain stores: they must be out before we look whether anybody sleeps.
    f.if(() => f.fence());
    if (ring !== undefined) f.get(run).mem("i32.load", word(RUN.bell)).call(ring);
  });
}

/** Where a rank has one strand, it polls the one word that the strand waits for: a look at all strands takes ten times as long. */
function addLinger(module: ModuleBuilder, wake: FunctionBuilder): FunctionBuilder {
  return module.function({ params: ["i32", "i32"], results: ["i32"] }, (f) => {
    const [run, entry] = [f.param(0), f.param(1)];
    const [spins, wanted, counter] = f.locals("i32", "i32", "i32");
    f.get(run).mem("i32.load", word(RUN.spins)).tee(spins).op("i32.eqz");
    f.get(run).mem("i32.load", word(RUN.numStrands)).i32(1).op("i32.ne", "i32.or");
    f.if(() => f.i32(0).op("return"));
    f.get(run).call(wake);
    f.get(entry).mem("i32.load", word(WAIT_ENTRY.counter)).set(counter);
    f.get(entry).mem("i32.load", word(WAIT_ENTRY.taken)).mem("i32.load");
    f.get(entry).mem("i32.load", word(WAIT_ENTRY.wanted)).op("i32.add").set(wanted);
    f.loop(() => {
      f.get(counter).mem("i32.atomic.load").get(wanted).op("i32.sub").i32(0).op("i32.ge_s");
      f.if(() => f.get(run, spins).mem("i32.store", word(RUN.spins)).i32(1).op("return"));
      f.get(spins).i32(1).op("i32.sub").tee(spins).brIf(0);
    });
    f.get(run).i32(0).mem("i32.store", word(RUN.spins)).i32(0);
  });
}
