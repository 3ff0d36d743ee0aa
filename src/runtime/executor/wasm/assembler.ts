/**
 * A small WebAssembly assembler: functions over one imported shared memory, a table of functions for indirect calls,
 * SIMD and atomics. The idea of writing kernels through a host-language assembler is that of ekzhang/jax-js's
 * wasmblr; the encodings are in `opcodes.ts`. It does not check types: WebAssembly's own validation does.
 */
import { invariant } from "../../../core/index.ts";
import {
  LANE_OPCODES,
  type LaneOpcode,
  MEMORY_OPCODES,
  type MemoryOpcode,
  OPCODES,
  type Opcode,
  VALUE_TYPES,
  type ValueType,
} from "./opcodes.ts";

/** Unsigned LEB128. */
function unsigned(value: number): number[] {
  const bytes: number[] = [];
  let rest = value;
  do {
    const low = rest % 128;
    rest = Math.floor(rest / 128);
    bytes.push(rest === 0 ? low : low | 128);
  } while (rest !== 0);
  return bytes;
}

/** Signed LEB128 of a 32-bit integer. */
function signed(value: number): number[] {
  const bytes: number[] = [];
  let rest = value | 0;
  for (;;) {
    const low = rest & 127;
    rest >>= 7;
    if ((rest === 0 && (low & 64) === 0) || (rest === -1 && (low & 64) !== 0)) return [...bytes, low];
    bytes.push(low | 128);
  }
}

/** Concatenates; typed arrays throughout, because a module has a quarter of a million bytes. */
function join(parts: readonly ArrayLike<number>[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
const sized = (bytes: ArrayLike<number>) => join([unsigned(bytes.length), bytes]);
const vector = (items: readonly ArrayLike<number>[]) => join([unsigned(items.length), ...items]);
const text = (value: string) => sized(new TextEncoder().encode(value));

/** Whether this processor shows others all stores in the order of the program; V8 does not change that order. */
const STORES_KEEP_ORDER = process.arch === "x64";

/** A local variable or parameter. */
export interface Local {
  readonly index: number;
  readonly type: ValueType;
}
export interface Signature {
  readonly params: readonly ValueType[];
  readonly results: readonly ValueType[];
}

/** The body of one function, written instruction by instruction. */
export class FunctionBuilder {
  readonly index: number;
  readonly signature: Signature;
  readonly #locals: ValueType[] = [];
  readonly #code: number[] = [];

  constructor(index: number, signature: Signature) {
    this.index = index;
    this.signature = signature;
  }

  param(index: number): Local {
    const type = this.signature.params[index];
    invariant(type !== undefined, `function ${this.index} has no parameter ${index}`);
    return { index, type };
  }
  local(type: ValueType): Local {
    this.#locals.push(type);
    return { index: this.signature.params.length + this.#locals.length - 1, type };
  }
  locals<const T extends readonly ValueType[]>(...types: T): { readonly [K in keyof T]: Local } {
    return types.map((type) => this.local(type)) as unknown as { readonly [K in keyof T]: Local };
  }

  #opcode(code: number): void {
    if (code < 0x100) this.#code.push(code);
    else this.#code.push(code >>> 12, ...unsigned(code & 0xfff));
  }
  op(...names: readonly Opcode[]): this {
    for (const name of names) this.#opcode(OPCODES[name]);
    return this;
  }
  /** A load, store or atomic at `offset` from the address on the stack. Plain accesses claim no alignment. */
  mem(name: MemoryOpcode, offset = 0): this {
    const [code, align] = MEMORY_OPCODES[name];
    this.#opcode(code);
    this.#code.push(code >>> 12 === 0xfe ? align : 0, ...unsigned(offset));
    return this;
  }
  /**
   * A store whose reader sees all stores before it too. x86 keeps all stores in order, and this one may be on its way yet while
   * the next loads run: waiting for it, as an atomic store does, takes as long as fetching its line from whoever polls it.
   */
  release(type: "i32" | "i64", offset = 0): this {
    return this.mem(STORES_KEEP_ORDER ? `${type}.store` : `${type}.atomic.store`, offset);
  }
  lane(name: LaneOpcode, lane: number): this {
    this.#opcode(LANE_OPCODES[name]);
    this.#code.push(lane);
    return this;
  }
  /** `i8x16.shuffle`: lane i of the result is byte `lanes[i]` of the two vectors on the stack. */
  shuffle(lanes: readonly number[]): this {
    invariant(lanes.length === 16, "a shuffle names 16 lanes");
    this.#opcode(0xfd00d);
    this.#code.push(...lanes);
    return this;
  }
  get(...locals: readonly Local[]): this {
    for (const local of locals) this.#code.push(0x20, ...unsigned(local.index));
    return this;
  }
  set(local: Local): this {
    this.#code.push(0x21, ...unsigned(local.index));
    return this;
  }
  tee(local: Local): this {
    this.#code.push(0x22, ...unsigned(local.index));
    return this;
  }
  i32(value: number): this {
    this.#code.push(0x41, ...signed(value));
    return this;
  }
  /** `v128.const` with the same 32 bits in every lane. */
  splat32(bits: number): this {
    const word = [bits & 255, (bits >>> 8) & 255, (bits >>> 16) & 255, bits >>> 24];
    this.#opcode(0xfd00c);
    this.#code.push(...word, ...word, ...word, ...word);
    return this;
  }
  /** `v128.const` with the same 64 bits in both lanes. */
  splat64(low: number, high: number): this {
    const word = [low, high].flatMap((w) => [w & 255, (w >>> 8) & 255, (w >>> 16) & 255, w >>> 24]);
    this.#opcode(0xfd00c);
    this.#code.push(...word, ...word);
    return this;
  }
  block(body: () => void): this {
    this.#code.push(0x02, 0x40);
    body();
    return this.op("end");
  }
  loop(body: () => void): this {
    this.#code.push(0x03, 0x40);
    body();
    return this.op("end");
  }
  if(body: () => void, otherwise?: () => void): this {
    this.#code.push(0x04, 0x40);
    body();
    if (otherwise !== undefined) {
      this.op("else");
      otherwise();
    }
    return this.op("end");
  }
  br(depth: number): this {
    this.#code.push(0x0c, ...unsigned(depth));
    return this;
  }
  brIf(depth: number): this {
    this.#code.push(0x0d, ...unsigned(depth));
    return this;
  }
  /** Jumps out of as many blocks as the number on the stack says; out of `otherwise` where there are not that many. */
  brTable(depths: readonly number[], otherwise: number): this {
    this.#code.push(0x0e, ...unsigned(depths.length), ...depths.flatMap(unsigned), ...unsigned(otherwise));
    return this;
  }
  i64(value: number): this {
    this.#code.push(0x42, ...signed(value));
    return this;
  }
  /** Orders this thread's plain accesses before it with those after it, for all threads. */
  fence(): this {
    this.#code.push(0xfe, 0x03, 0x00);
    return this;
  }
  call(target: FunctionBuilder): this {
    this.#code.push(0x10, ...unsigned(target.index));
    return this;
  }
  /** Calls the table entry whose index is on the stack. */
  callIndirect(typeIndex: number): this {
    this.#code.push(0x11, ...unsigned(typeIndex), 0);
    return this;
  }

  encode(): Uint8Array {
    const locals = this.#locals.map((type) => [1, VALUE_TYPES[type]]);
    return sized(join([vector(locals), this.#code, [OPCODES.end]]));
  }
}

/** A module that imports the shared memory `env.memory`, up to 4 GiB. */
export class ModuleBuilder {
  readonly #types: Signature[] = [];
  readonly #imports: { name: string; signature: Signature }[] = [];
  readonly #functions: FunctionBuilder[] = [];
  readonly #exports: { name: string; index: number }[] = [];
  readonly #table: number[] = [];

  typeIndex(signature: Signature): number {
    const key = JSON.stringify(signature);
    const found = this.#types.findIndex((type) => JSON.stringify(type) === key);
    return found >= 0 ? found : this.#types.push(signature) - 1;
  }
  /** Imports the function `env.name`. Before any function of the module's own: their numbers follow. */
  importFunction(name: string, signature: Signature): FunctionBuilder {
    invariant(this.#functions.length === 0, `${name} is imported before functions are made`);
    this.typeIndex(signature);
    return new FunctionBuilder(this.#imports.push({ name, signature }) - 1, signature);
  }
  function(signature: Signature, body: (f: FunctionBuilder) => void, exportName?: string): FunctionBuilder {
    const f = new FunctionBuilder(this.#imports.length + this.#functions.length, signature);
    this.typeIndex(signature);
    this.#functions.push(f);
    body(f);
    if (exportName !== undefined) this.#exports.push({ name: exportName, index: f.index });
    return f;
  }
  /** Adds a function to the table and returns its place there. */
  tableEntry(f: FunctionBuilder): number {
    return this.#table.push(f.index) - 1;
  }

  encode(): Uint8Array<ArrayBuffer> {
    const section = (id: number, content: ArrayLike<number>) => join([[id], sized(content)]);
    const valueTypes = (types: readonly ValueType[]) => vector(types.map((type) => [VALUE_TYPES[type]]));
    const types = this.#types.map(({ params, results }) => join([[0x60], valueTypes(params), valueTypes(results)]));
    const memory = join([text("env"), text("memory"), [0x02, 0x03], unsigned(0), unsigned(65_536)]);
    const imports = this.#imports.map(({ name, signature }) =>
      join([text("env"), text(name), [0x00], unsigned(this.typeIndex(signature))]),
    );
    const tableSize = unsigned(this.#table.length);
    const elements = vector(this.#table.map((index) => unsigned(index)));
    return join([
      [0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0],
      section(1, vector(types)),
      section(2, vector([memory, ...imports])),
      section(3, vector(this.#functions.map((f) => unsigned(this.typeIndex(f.signature))))),
      section(4, vector([join([[0x70, 0x01], tableSize, tableSize])])),
      section(7, vector(this.#exports.map(({ name, index }) => join([text(name), [0x00], unsigned(index)])))),
      section(9, vector([join([[0, 0x41, 0, 0x0b], elements])])),
      section(10, vector(this.#functions.map((f) => f.encode()))),
    ]);
  }
}
