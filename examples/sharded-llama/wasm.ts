/**
 * A WebAssembly module from nested arrays of bytes: as much of an assembler as the kernels of this example need.
 * Binary format: https://webassembly.github.io/spec/core/binary/
 */

/** Instructions: bytes, nested freely. An expression leaves one value on the stack. */
export type Code = number | readonly Code[];

export type ValueType = "i32" | "f32" | "v128";
const TYPE_BYTE = { i32: 0x7f, f32: 0x7d, v128: 0x7b } as const;

/** Unsigned LEB128. */
export function leb(value: number): number[] {
  const bytes: number[] = [];
  for (let rest = value; ; rest = Math.floor(rest / 128)) {
    if (rest < 128) return [...bytes, rest];
    bytes.push((rest % 128) + 128);
  }
}

/** Signed LEB128, for constants of 32 bits. */
function signedLeb(value: number): number[] {
  const bytes: number[] = [];
  for (let rest = value | 0; ; rest >>= 7) {
    if (rest >= -64 && rest < 64) return [...bytes, rest & 127];
    bytes.push((rest & 127) | 128);
  }
}

const float = (x: number) => [...new Uint8Array(Float32Array.of(x).buffer)];

export const get = (local: number): Code => [0x20, leb(local)];
export const set = (local: number, value: Code): Code => [value, 0x21, leb(local)];
export const i32 = (value: number): Code => [0x41, signedLeb(value)];
export const f32 = (value: number): Code => [0x43, float(value)];

/** An instruction of one byte after its operands. */
const op =
  (code: number) =>
  (...operands: Code[]): Code => [...operands, code];
export const iadd = op(0x6a);
export const isub = op(0x6b);
export const imul = op(0x6c);
export const lessThan = op(0x49); // i32.lt_u: addresses use all 32 bits
export const fadd = op(0x92);
export const fmul = op(0x94);
export const fdiv = op(0x95);
export const fsqrt = op(0x91);
export const fmax = op(0x97);

/** f32 at `address + offset`. */
export const fstore = (address: Code, value: Code, offset = 0): Code => [address, value, 0x38, 2, leb(offset)];

/** A SIMD instruction after its operands. */
const simd =
  (code: number) =>
  (...operands: Code[]): Code => [...operands, 0xfd, leb(code)];
export const splat = simd(0x13);
export const vadd = simd(0xe4);
export const vsub = simd(0xe5);
export const vmul = simd(0xe6);
export const vdiv = simd(0xe7);
export const vmin = simd(0xe8);
export const vmax = simd(0xe9);
export const vnegate = simd(0xe1);
export const vnearest = simd(0x6a);
export const vtruncate = simd(0xf8); // f32x4 -> i32x4
export const viadd = simd(0xae);
export const visplat = simd(0x11);
export const vshiftLeft = simd(0xab);
export const vload = (address: Code, offset = 0): Code => [address, 0xfd, 0x00, 2, leb(offset)];
export const vloadSplat = (address: Code, offset = 0): Code => [address, 0xfd, 0x09, 2, leb(offset)];
export const vstore = (address: Code, value: Code, offset = 0): Code => [address, value, 0xfd, 0x0b, 2, leb(offset)];
export const lane = (vector: Code, index: number): Code => [vector, 0xfd, 0x1f, index];
export const vzero: Code = [0xfd, 0x0c, ...new Array<number>(16).fill(0)];
/** Picks four lanes: 0 to 3 from `a`, 4 to 7 from `b`. */
export const shuffle = (a: Code, b: Code, lanes: readonly number[]): Code => [
  a,
  b,
  0xfd,
  0x0d,
  lanes.flatMap((l) => [4 * l, 4 * l + 1, 4 * l + 2, 4 * l + 3]),
];

export const when = (condition: Code, then: Code): Code => [condition, 0x04, 0x40, then, 0x0b];
/** Runs `body` as long as `condition` holds, tested before each round. */
export const loopWhile = (condition: Code, body: Code): Code =>
  when(condition, [0x03, 0x40, body, condition, 0x0d, 0, 0x0b]);

export interface WasmFunction {
  readonly name: string;
  readonly params: readonly ValueType[];
  /** Numbered on from the params. */
  readonly locals: readonly ValueType[];
  readonly body: Code;
}

/** Assembles a module that imports `env.memory` and exports every function, none of which returns a value. */
export function assemble(functions: readonly WasmFunction[]): Uint8Array<ArrayBuffer> {
  const vector = (items: readonly Code[]): Code => [leb(items.length), ...items];
  const section = (id: number, content: Code): Code => {
    const bytes = flatten(content);
    return [id, leb(bytes.length), bytes];
  };
  const text = (s: string): Code => vector([...new TextEncoder().encode(s)]);
  const code = functions.map(({ locals, body }) => {
    const bytes = flatten([vector(locals.map((type) => [1, TYPE_BYTE[type]])), body, 0x0b]);
    return [leb(bytes.length), bytes];
  });
  return Uint8Array.from(
    flatten([
      [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
      section(1, vector(functions.map(({ params }) => [0x60, vector(params.map((type) => TYPE_BYTE[type])), 0]))),
      section(2, vector([[text("env"), text("memory"), 0x02, 0x00, 0]])),
      section(3, vector(functions.map((_, index) => leb(index)))),
      section(7, vector(functions.map(({ name }, index) => [text(name), 0x00, leb(index)]))),
      section(10, vector(code)),
    ]),
  );
}

function flatten(code: Code, into: number[] = []): number[] {
  if (typeof code === "number") into.push(code);
  else for (const part of code) flatten(part, into);
  return into;
}

/** The part of the WebAssembly API that is used here; TypeScript describes it only in its library for browsers. */
export interface Memory {
  readonly buffer: ArrayBuffer;
}
export interface Module {
  readonly [Symbol.toStringTag]: "WebAssembly.Module";
}
interface Api {
  readonly Memory: new (descriptor: { initial: number; maximum: number }) => Memory;
  readonly Module: new (bytes: Uint8Array<ArrayBuffer>) => Module;
  readonly Instance: new (module: Module, imports: { env: { memory: Memory } }) => { readonly exports: unknown };
}
const api = (globalThis as unknown as { WebAssembly: Api }).WebAssembly;

export const PAGE_BYTES = 65_536;

/** Reserves private memory of zeros; pages are committed when they are first written. @throws RangeError */
export const newMemory = (pages: number): Memory => new api.Memory({ initial: pages, maximum: pages });
export const compile = (bytes: Uint8Array<ArrayBuffer>): Module => new api.Module(bytes);
/** The exports of a module that imports `env.memory`. */
export const instantiate = <Exports>(module: Module, memory: Memory): Exports =>
  new api.Instance(module, { env: { memory } }).exports as Exports;
