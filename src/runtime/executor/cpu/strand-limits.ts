/** Which bytes of an operation a strand moves now: within a pipeline, those of the unit that it is at. */
import type { FunctionBuilder, ModuleBuilder } from "../wasm/assembler.ts";
import { DATA, RUN, STRAND, word } from "./image.ts";

/** (run, strand, pc) -> whether there is anything to do: sets RUN.begin and RUN.end. */
export function addStrandLimits(module: ModuleBuilder): FunctionBuilder {
  return module.function({ params: ["i32", "i32", "i32"], results: ["i32"] }, (f) => {
    const [run, strand, pc] = [f.param(0), f.param(1), f.param(2)];
    const [begin, end, lead, unitEnd] = f.locals("i32", "i32", "i32", "i32");
    f.get(pc).mem("i32.load", word(DATA.length)).set(end);
    f.get(strand).mem("i32.load", word(STRAND.unit)).i32(-1).op("i32.ne");
    f.get(pc).mem("i32.load", word(DATA.windowed)).op("i32.and");
    f.if(() => {
      f.get(pc).mem("i32.load", word(DATA.lead)).set(lead);
      f.get(strand).mem("i32.load", word(STRAND.unitStart)).tee(begin);
      f.get(strand).mem("i32.load", word(STRAND.unit)).op("i32.add").set(unitEnd);
      // Beyond 4 GiB: there is nothing that long.
      f.i32(-1).get(unitEnd).get(unitEnd).get(begin).op("i32.lt_u", "select").set(unitEnd);
      for (const edge of [begin, unitEnd]) {
        f.get(edge).get(lead).op("i32.sub").i32(0).get(edge).get(lead).op("i32.gt_u", "select").set(edge);
      }
      f.get(unitEnd).get(end).get(unitEnd).get(end).op("i32.lt_u", "select").set(end);
    });
    f.get(run, begin).mem("i32.store", word(RUN.begin)).get(run, end).mem("i32.store", word(RUN.end));
    f.get(begin, end).op("i32.lt_u");
  });
}
