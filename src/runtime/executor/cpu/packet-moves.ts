/**
 * Packets in memory: 4 bytes of data and 4 of a flag, the launch's number, side by side (NCCL's "LL" protocol). A packet
 * is stored as one aligned piece of 8 bytes, which processors never tear, so whoever sees the flag sees the data.
 */
import type { FunctionBuilder, Local, ModuleBuilder } from "../wasm/assembler.ts";

/** The functions that move packets. `bytes` counts data; a last packet may be filled by 1 to 3 bytes only. */
export interface PacketMoves {
  /** (to, from, bytes, flag): plain data becomes packets. */
  readonly pack: FunctionBuilder;
  /** (to, from, bytes): packets become plain data. */
  readonly unpack: FunctionBuilder;
  /** (at, bytes, flag) -> 1 when all packets carry the flag. */
  readonly ready: FunctionBuilder;
}

/** Bytes of 32-bit lanes of two vectors: `lanes` counts the first one's from 0, the second one's from 4. */
const lanes = (...picked: readonly number[]) => picked.flatMap((lane) => [0, 1, 2, 3].map((byte) => 4 * lane + byte));

export function addPacketMoves(module: ModuleBuilder): PacketMoves {
  const pack = module.function({ params: ["i32", "i32", "i32", "i32"], results: [] }, (f) => {
    const [to, from, bytes, flag] = [f.param(0), f.param(1), f.param(2), f.param(3)];
    const [data, flags] = f.locals("v128", "v128");
    const word = f.local("i32");
    f.get(flag).op("i32x4.splat").set(flags);
    whileAtLeast(f, bytes, 16, [from, 16, to, 32], () => {
      f.get(from).mem("v128.load").set(data);
      f.get(to, data, flags)
        .shuffle(lanes(0, 4, 1, 5))
        .mem("v128.store");
      f.get(to, data, flags)
        .shuffle(lanes(2, 4, 3, 5))
        .mem("v128.store", 16);
    });
    const store = () => {
      f.get(to).get(word).op("i64.extend_i32_u");
      f.get(flag).op("i64.extend_i32_u").i64(32).op("i64.shl", "i64.or").mem("i64.store");
    };
    whileAtLeast(f, bytes, 4, [from, 4, to, 8], () => {
      f.get(from).mem("i32.load").set(word);
      store();
    });
    f.get(bytes);
    f.if(() => {
      // The last 1 to 3 bytes, one by one: what lies behind them is not ours to read.
      f.get(from).mem("i32.load8_u").set(word);
      for (const byte of [1, 2]) {
        f.get(bytes).i32(byte).op("i32.gt_u");
        f.if(() => {
          f.get(word)
            .get(from)
            .mem("i32.load8_u", byte)
            .i32(8 * byte)
            .op("i32.shl", "i32.or")
            .set(word);
        });
      }
      store();
    });
  });
  const unpack = module.function({ params: ["i32", "i32", "i32"], results: [] }, (f) => {
    const [to, from, bytes] = [f.param(0), f.param(1), f.param(2)];
    whileAtLeast(f, bytes, 16, [from, 32, to, 16], () => {
      f.get(to).get(from).mem("v128.load").get(from).mem("v128.load", 16);
      f.shuffle(lanes(0, 2, 4, 6)).mem("v128.store");
    });
    whileAtLeast(f, bytes, 4, [from, 8, to, 4], () => f.get(to, from).mem("i32.load").mem("i32.store"));
    for (const byte of [0, 1, 2]) {
      f.get(bytes).i32(byte).op("i32.gt_u");
      f.if(() => f.get(to, from).mem("i32.load8_u", byte).mem("i32.store8", byte));
    }
  });
  const ready = module.function({ params: ["i32", "i32", "i32"], results: ["i32"] }, (f) => {
    const [at, bytes, flag] = [f.param(0), f.param(1), f.param(2)];
    const [differ, flags] = f.locals("v128", "v128");
    const left = f.local("i32");
    f.get(bytes).i32(3).op("i32.add").i32(2).op("i32.shr_u").tee(left).op("i32.eqz");
    f.if(() => f.i32(1).op("return"));
    // The last packet is mostly the last to come.
    f.get(at).get(left).i32(3).op("i32.shl", "i32.add").i32(4).op("i32.sub").mem("i32.load").get(flag).op("i32.ne");
    f.if(() => f.i32(0).op("return"));
    f.get(flag).op("i32x4.splat").set(flags);
    whileAtLeast(f, left, 2, [at, 16], () => {
      f.get(at).mem("v128.load").get(flags).op("v128.xor").get(differ).op("v128.or").set(differ);
    });
    f.get(differ).splat64(0, 0xffffffff).op("v128.and", "v128.any_true", "i32.eqz");
  });
  return { pack, unpack, ready };
}

/** Repeats `body` while `left` is at least `width`; steps the given addresses, and takes `width` from `left`. */
function whileAtLeast(
  f: FunctionBuilder,
  left: Local,
  width: number,
  steps: readonly (Local | number)[],
  body: () => void,
): void {
  f.block(() =>
    f.loop(() => {
      f.get(left).i32(width).op("i32.lt_u").brIf(1);
      body();
      for (let i = 0; i < steps.length; i += 2) {
        const address = steps[i] as Local;
        f.get(address)
          .i32(steps[i + 1] as number)
          .op("i32.add")
          .set(address);
      }
      f.get(left).i32(width).op("i32.sub").set(left).br(0);
    }),
  );
}
