/** The start of a launch: strands at their beginning, semaphores as they begin, and the ranks' scratch as it lies now. */
import type { FunctionBuilder, ModuleBuilder } from "../wasm/assembler.ts";
import { BASE, RUN, STRAND, word } from "./image.ts";

/** (run): see `MachineExports.launch`. */
export function addLaunch(module: ModuleBuilder): FunctionBuilder {
  return module.function(
    { params: ["i32"], results: [] },
    (f) => {
      const run = f.param(0);
      const [strand, left, flag, half] = f.locals("i32", "i32", "i32", "i32");
      const [at, from] = f.locals("i32", "i32");
      const each = (count: number, body: () => void) => {
        f.get(run).mem("i32.load", word(count)).set(left);
        f.block(() =>
          f.loop(() => {
            f.get(left).op("i32.eqz").brIf(1);
            body();
            f.get(left).i32(1).op("i32.sub").set(left).br(0);
          }),
        );
      };
      f.get(run).mem("i32.load", word(RUN.state)).tee(at).mem("i32.load").tee(flag).i32(1).op("i32.and");
      f.get(run).mem("i32.load", word(RUN.half)).op("i32.mul").set(half);
      f.get(at, flag).i32(1).op("i32.add").tee(flag).mem("i32.store");
      f.get(run, flag).mem("i32.store", word(RUN.flag));
      f.get(run).mem("i32.load", word(RUN.bases)).set(at);
      each(RUN.numBases, () => {
        const address = (which: number) => f.get(at).mem("i32.load", word(which)).mem("i32.load");
        f.get(at).mem("i32.load", word(BASE.target)).set(from).get(from);
        address(BASE.scratch).get(half).op("i32.add").mem("i32.store").get(from);
        address(BASE.packets).get(half, half).op("i32.add", "i32.add").mem("i32.store", 4);
        f.get(at).i32(word(BASE.words)).op("i32.add").set(at);
      });
      f.get(run).mem("i32.load", word(RUN.semaphores)).set(at);
      f.get(run).mem("i32.load", word(RUN.initial)).set(from);
      each(RUN.numSemaphores, () => {
        f.get(at, from).mem("i32.load").mem("i32.store");
        for (const pointer of [at, from]) f.get(pointer).i32(4).op("i32.add").set(pointer);
      });
      f.get(run).mem("i32.load", word(RUN.strands)).set(strand);
      each(RUN.numStrands, () => {
        f.get(strand, strand).mem("i32.load", word(STRAND.first)).mem("i32.store", word(STRAND.pc));
        f.get(strand).i32(-1).mem("i32.store", word(STRAND.unit));
        for (const field of [STRAND.ahead, STRAND.unitStart, STRAND.round, STRAND.barrier, STRAND.done, STRAND.far])
          f.get(strand).i32(0).mem("i32.store", word(field));
        f.get(strand).i32(word(STRAND.words)).op("i32.add").set(strand);
      });
    },
    "launch",
  );
}
