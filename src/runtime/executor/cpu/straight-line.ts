/**
 * The launch of a plan that is nothing but data in plain memory, on a rank that has met the others and will meet them again
 * (one-pass-plan.ts). It has one strand, no counters and no scratch, so nothing is reset before it and nothing waits within it.
 */
import type { FunctionBuilder, ModuleBuilder } from "../wasm/assembler.ts";
import { COPY_KERNEL } from "../wasm/reduce-kernels.ts";
import { CODE, DATA, RECORD, RUN, word } from "./image.ts";

interface LineParts {
  readonly kernelType: number;
  readonly copy: FunctionBuilder;
  readonly launch: FunctionBuilder;
  readonly runStrands: FunctionBuilder;
}

/** (run, spins) -> as `runStrands`: a launch from its beginning, for ranks that have met. */
export function addStart(module: ModuleBuilder, { kernelType, copy, launch, runStrands }: LineParts): FunctionBuilder {
  return module.function({ params: ["i32", "i32"], results: ["i32"] }, (f) => {
    const [run, spins] = [f.param(0), f.param(1)];
    const [pc, at, left, length, numIn, start] = f.locals("i32", "i32", "i32", "i32", "i32", "i32");
    const [inTable, outTable, table, source, address] = f.locals("i32", "i32", "i32", "i32", "i32");
    const operand = (index: number) => f.get(pc).mem("i32.load", word(index));
    const nextRange = () => f.get(at).i32(8).op("i32.add").set(at);
    /** Leaves the address of the range at `at`, and goes on to the next one. */
    const take = () => {
      f.get(at).mem("i32.load").mem("i32.load").get(at).mem("i32.load", 4).op("i32.add").set(address);
      nextRange();
      return f.get(address);
    };
    const put = () => {
      f.get(table);
      take().mem("i32.store");
    };
    const step = () => f.get(table).i32(4).op("i32.add").set(table);
    f.get(run).mem("i32.load", word(RUN.straight)).tee(pc).op("i32.eqz");
    f.if(() => f.get(run).call(launch).get(run, spins).call(runStrands).op("return"));
    f.loop(() => {
      f.get(pc).mem("i32.load").op("i32.eqz");
      f.if(() => f.i32(0).op("return"));
      operand(DATA.length).tee(length);
      f.if(() => {
        f.get(pc).i32(word(DATA.ranges)).op("i32.add").set(at);
        f.get(pc).mem("i32.load").i32(CODE.copy).op("i32.eq");
        f.if(
          () => {
            take().set(source);
            take().get(source).op("i32.ne");
            f.if(() => f.get(address, source, length).call(copy));
          },
          () => {
            operand(DATA.inTable).tee(inTable);
            f.if(() => {
              operand(DATA.start).set(start);
              operand(DATA.outTable).tee(outTable).op("i32.eqz");
              f.if(() => {
                f.get(at);
                operand(DATA.numIn).i32(8).op("i32.mul", "i32.add").set(at);
                f.get(run).mem("i32.load", word(RUN.outTable)).tee(outTable).set(table);
                operand(DATA.numOut).set(left);
                f.loop(() => {
                  // The kernel adds `start` to every address.
                  f.get(table);
                  take().get(start).op("i32.sub").mem("i32.store");
                  step();
                  f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
                });
              });
              f.get(inTable);
              operand(DATA.numIn).get(outTable);
              operand(DATA.numOut).get(start, start, length).op("i32.add");
              f.get(run).mem("i32.load", word(RUN.kernelContext));
              operand(DATA.kernel).callIndirect(kernelType);
              operand(RECORD.next).set(pc).br(3);
            });
            f.get(run).mem("i32.load", word(RUN.inTable)).tee(inTable).set(table);
            operand(DATA.numIn).tee(numIn).set(left);
            f.loop(() => {
              put();
              step();
              f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
            });
            f.get(run).mem("i32.load", word(RUN.outTable)).tee(outTable).set(table);
            operand(DATA.numOut).set(left);
            f.get(numIn).i32(1).op("i32.eq");
            operand(DATA.kernel).i32(COPY_KERNEL).op("i32.eq", "i32.and");
            f.if(
              () => {
                // A copy need not be stored where it comes from.
                f.get(inTable).mem("i32.load").set(source);
                f.loop(() => {
                  put();
                  f.get(address, source).op("i32.ne");
                  f.if(step);
                  f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
                });
              },
              () =>
                f.loop(() => {
                  put();
                  step();
                  f.get(left).i32(1).op("i32.sub").tee(left).brIf(0);
                }),
            );
            f.get(table, outTable).op("i32.ne");
            f.if(() => {
              f.get(inTable, numIn, outTable).get(table, outTable).op("i32.sub").i32(2).op("i32.shr_u");
              f.i32(0).get(length, run).mem("i32.load", word(RUN.kernelContext));
              operand(DATA.kernel).callIndirect(kernelType);
            });
          },
        );
      });
      operand(RECORD.next).set(pc).br(0);
    });
    f.i32(0);
  });
}
