/**
 * The arithmetic of a Llama layer as f32 SIMD kernels over one WASM memory. Every dim is padded to a multiple of
 * `PAD` with zeros, so that no kernel has a tail; addresses are bytes, lengths elements or bytes as named.
 */
import {
  assemble,
  type Code,
  compile,
  f32,
  fadd,
  fdiv,
  fmax,
  fmul,
  fsqrt,
  fstore,
  get,
  i32,
  iadd,
  imul,
  instantiate,
  isub,
  lane,
  lessThan,
  loopWhile,
  type Memory,
  type Module,
  set,
  shuffle,
  splat,
  vadd,
  vdiv,
  viadd,
  visplat,
  vload,
  vloadSplat,
  vmax,
  vmin,
  vmul,
  vnearest,
  vnegate,
  vshiftLeft,
  vstore,
  vsub,
  vtruncate,
  vzero,
  type WasmFunction,
  when,
} from "./wasm.ts";

/** Every dim in memory is a multiple of this many elements. */
export const PAD = 8;
/** Rounds a dim up to `PAD`. */
export const padded = (n: number): number => Math.ceil(n / PAD) * PAD;

export interface Kernels {
  /** out[t][n] = sum over k of x[t][k] w[n][k], plus bias[n] unless `bias` is 0. x is [tokens][k], out [tokens][n]. */
  matmul(x: number, w: number, out: number, bias: number, tokens: number, n: number, kBytes: number): void;
  /** out[t] = x[t] / sqrt(mean(x[t]^2) + eps) * weight. `width`: the unpadded dim, over which the mean is taken. */
  rmsnorm(x: number, weight: number, out: number, tokens: number, rowBytes: number, width: number, eps: number): void;
  /** Rotates (first half, second half) of `heads` consecutive heads of one token. */
  rope(x: number, cos: number, sin: number, heads: number, halfBytes: number): void;
  /**
   * One head of one token: softmax(scale * q k^T) v over `positions` rows of k and v that lie `stride` bytes apart.
   * `scores` needs `positions` + 4 elements.
   */
  attend(
    q: number,
    k: number,
    v: number,
    scores: number,
    out: number,
    positions: number,
    stride: number,
    headBytes: number,
    scale: number,
  ): void;
  /** out[t][i] = silu(x[t][i]) x[t][n + i]; x is [tokens][2 n], out [tokens][n]. */
  siluMul(x: number, out: number, tokens: number, rowBytes: number): void;
  /** x[i] += y[i] over `bytes`. */
  add(x: number, y: number, bytes: number): void;
}

/** Adds a constant to a pointer. */
const bump = (local: number, bytes: number | Code): Code =>
  set(local, iadd(get(local), typeof bytes === "number" ? i32(bytes) : bytes));

/** Sum of the four lanes of a local. */
const sumLanes = (v: number): Code =>
  fadd(fadd(lane(get(v), 0), lane(get(v), 1)), fadd(lane(get(v), 2), lane(get(v), 3)));

/** Four vectors -> the vector of their lane sums. */
const sumOfFour = (a: number, b: number, c: number, d: number, s: number, u: number): Code => {
  const halves = (x: number, y: number) =>
    vadd(shuffle(get(x), get(y), [0, 4, 1, 5]), shuffle(get(x), get(y), [2, 6, 3, 7]));
  return [
    set(s, halves(a, b)),
    set(u, halves(c, d)),
    vadd(shuffle(get(s), get(u), [0, 1, 4, 5]), shuffle(get(s), get(u), [2, 3, 6, 7])),
  ];
};

/**
 * exp of the local `x`, as Cephes expf: x = n ln 2 + r, a polynomial for exp(r), n into the exponent bits.
 * Below -87 the result is about 1e-38 instead of 0.
 */
const exp = (x: number, n: number, y: number): Code => {
  const c = (value: number) => splat(f32(value));
  const coefficients = [1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1];
  return [
    set(x, vmin(vmax(get(x), c(-87)), c(88))),
    set(n, vnearest(vmul(get(x), c(Math.LOG2E)))),
    set(x, vsub(get(x), vmul(get(n), c(0.693359375)))),
    set(x, vsub(get(x), vmul(get(n), c(-2.1219444e-4)))),
    set(y, c(1.98756915e-4)),
    coefficients.map((value) => set(y, vadd(vmul(get(y), get(x)), c(value)))),
    set(y, vadd(vmul(get(y), vmul(get(x), get(x))), vadd(get(x), c(1)))),
    vmul(get(y), [vshiftLeft(viadd(vtruncate(get(n)), visplat(i32(127))), i32(23))]),
  ];
};

function matmul(): WasmFunction {
  const [x, w, out, bias, tokens, n, kBytes] = [0, 1, 2, 3, 4, 5, 6];
  const [wp, xp, end, op, t, row, w1, w2, w3] = [7, 8, 9, 10, 11, 12, 13, 14, 15];
  const [a, b, c, d, e, f, g, h, xv, yv, s, u, wv] = [16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28];
  const weights = [wp, w1, w2, w3];
  /** 4 rows of w times one or two tokens; the weights are read once for both. */
  const tile = (numTokens: 1 | 2): Code => {
    const accumulators = [
      [a, b, c, d],
      [e, f, g, h],
    ].slice(0, numTokens);
    const step = (offset: number): Code => [
      set(xv, vload(get(xp), offset)),
      numTokens === 2 ? set(yv, vload(iadd(get(xp), get(kBytes)), offset)) : [],
      weights.map((pointer, i) => [
        set(wv, vload(get(pointer), offset)),
        accumulators.map((row, j) => set(row[i]!, vadd(get(row[i]!), vmul(get(j === 0 ? xv : yv), get(wv))))),
      ]),
    ];
    return [
      accumulators.flat().map((v) => set(v, vzero)),
      set(wp, get(row)),
      [w1, w2, w3].map((pointer, i) => set(pointer, iadd(get(weights[i]!), get(kBytes)))),
      set(end, get(w1)),
      loopWhile(lessThan(get(wp), get(end)), [step(0), step(16), [...weights, xp].map((pointer) => bump(pointer, 32))]),
      accumulators.map(([p, q, r, z], j) => [
        set(xv, sumOfFour(p!, q!, r!, z!, s, u)),
        when(get(bias), set(xv, vadd(get(xv), vload(get(bias))))),
        vstore(j === 0 ? get(op) : iadd(get(op), imul(get(n), i32(4))), get(xv)),
      ]),
      // xp stands behind the first token's row; a second token moves it once more.
      numTokens === 2 ? bump(xp, get(kBytes)) : [],
      bump(op, imul(get(n), i32(4 * numTokens))),
      bump(t, numTokens),
    ];
  };
  const remaining = 29;
  return {
    name: "matmul",
    params: ["i32", "i32", "i32", "i32", "i32", "i32", "i32"],
    locals: [...Array<"i32">(9).fill("i32"), ...Array<"v128">(13).fill("v128"), "i32"],
    body: [
      set(row, get(w)),
      set(remaining, get(n)),
      loopWhile(get(remaining), [
        set(t, i32(0)),
        set(xp, get(x)),
        set(op, get(out)),
        loopWhile(lessThan(iadd(get(t), i32(1)), get(tokens)), tile(2)),
        when(lessThan(get(t), get(tokens)), tile(1)),
        bump(row, imul(get(kBytes), i32(4))),
        bump(out, 16),
        when(get(bias), bump(bias, 16)),
        set(remaining, isub(get(remaining), i32(4))),
      ]),
    ],
  };
}

function rmsnorm(): WasmFunction {
  const [x, weight, out, tokens, rowBytes, width, eps] = [0, 1, 2, 3, 4, 5, 6];
  const [end, wp, sum, scale] = [7, 8, 9, 10];
  return {
    name: "rmsnorm",
    params: ["i32", "i32", "i32", "i32", "i32", "f32", "f32"],
    locals: ["i32", "i32", "v128", "f32"],
    body: loopWhile(get(tokens), [
      set(sum, vzero),
      set(end, iadd(get(x), get(rowBytes))),
      loopWhile(lessThan(get(x), get(end)), [
        set(sum, vadd(get(sum), vmul(vload(get(x)), vload(get(x))))),
        bump(x, 16),
      ]),
      set(scale, fdiv(f32(1), fsqrt(fadd(fdiv(sumLanes(sum), get(width)), get(eps))))),
      set(x, isub(get(x), get(rowBytes))),
      set(wp, get(weight)),
      loopWhile(lessThan(get(x), get(end)), [
        vstore(get(out), vmul(vmul(vload(get(x)), splat(get(scale))), vload(get(wp)))),
        bump(x, 16),
        bump(wp, 16),
        bump(out, 16),
      ]),
      set(tokens, isub(get(tokens), i32(1))),
    ]),
  };
}

function rope(): WasmFunction {
  const [x, cos, sin, heads, halfBytes] = [0, 1, 2, 3, 4];
  const [end, y, cp, sp, a, b, c, s] = [5, 6, 7, 8, 9, 10, 11, 12];
  return {
    name: "rope",
    params: ["i32", "i32", "i32", "i32", "i32"],
    locals: ["i32", "i32", "i32", "i32", "v128", "v128", "v128", "v128"],
    body: loopWhile(get(heads), [
      set(end, iadd(get(x), get(halfBytes))),
      set(y, get(end)),
      set(cp, get(cos)),
      set(sp, get(sin)),
      loopWhile(lessThan(get(x), get(end)), [
        set(a, vload(get(x))),
        set(b, vload(get(y))),
        set(c, vload(get(cp))),
        set(s, vload(get(sp))),
        vstore(get(x), vsub(vmul(get(a), get(c)), vmul(get(b), get(s)))),
        vstore(get(y), vadd(vmul(get(b), get(c)), vmul(get(a), get(s)))),
        [x, y, cp, sp].map((pointer) => bump(pointer, 16)),
      ]),
      set(x, get(y)),
      set(heads, isub(get(heads), i32(1))),
    ]),
  };
}

function attend(): WasmFunction {
  const [q, k, v, scores, out, positions, stride, headBytes, scale] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
  const [p, qp, kp, end, sp, max, value, a, b, n, y, s] = [9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
  return {
    name: "attend",
    params: ["i32", "i32", "i32", "i32", "i32", "i32", "i32", "i32", "f32"],
    locals: ["i32", "i32", "i32", "i32", "i32", "f32", "f32", "v128", "v128", "v128", "v128", "v128"],
    body: [
      // scores = scale q k^T, and their maximum
      set(max, f32(Number.NEGATIVE_INFINITY)),
      set(sp, get(scores)),
      set(p, get(positions)),
      loopWhile(get(p), [
        set(a, vzero),
        set(b, vzero),
        set(qp, get(q)),
        set(kp, get(k)),
        set(end, iadd(get(q), get(headBytes))),
        loopWhile(lessThan(get(qp), get(end)), [
          set(a, vadd(get(a), vmul(vload(get(qp)), vload(get(kp))))),
          set(b, vadd(get(b), vmul(vload(get(qp), 16), vload(get(kp), 16)))),
          bump(qp, 32),
          bump(kp, 32),
        ]),
        set(a, vadd(get(a), get(b))),
        set(value, fmul(sumLanes(a), get(scale))),
        set(max, fmax(get(max), get(value))),
        fstore(get(sp), get(value)),
        bump(sp, 4),
        bump(k, get(stride)),
        set(p, isub(get(p), i32(1))),
      ]),
      // exp(score - max) and the sum; what the last vector has too much is e^-87, which no sum sees
      vstore(get(sp), splat(f32(Number.NEGATIVE_INFINITY))),
      set(end, get(sp)),
      set(sp, get(scores)),
      set(s, vzero),
      loopWhile(lessThan(get(sp), get(end)), [
        set(a, vsub(vload(get(sp)), splat(get(max)))),
        set(b, exp(a, n, y)),
        vstore(get(sp), get(b)),
        set(s, vadd(get(s), get(b))),
        bump(sp, 16),
      ]),
      set(value, fdiv(f32(1), sumLanes(s))),
      // out = sum of score v, eight lanes at a time
      set(qp, iadd(get(v), get(headBytes))),
      loopWhile(lessThan(get(v), get(qp)), [
        set(a, vzero),
        set(b, vzero),
        set(kp, get(v)),
        set(sp, get(scores)),
        loopWhile(lessThan(get(sp), get(end)), [
          set(n, vloadSplat(get(sp))),
          set(a, vadd(get(a), vmul(get(n), vload(get(kp))))),
          set(b, vadd(get(b), vmul(get(n), vload(get(kp), 16)))),
          bump(kp, get(stride)),
          bump(sp, 4),
        ]),
        vstore(get(out), vmul(get(a), splat(get(value)))),
        vstore(get(out), vmul(get(b), splat(get(value))), 16),
        bump(out, 32),
        bump(v, 32),
      ]),
    ],
  };
}

function siluMul(): WasmFunction {
  const [x, out, tokens, rowBytes] = [0, 1, 2, 3];
  const [end, a, n, y, g] = [4, 5, 6, 7, 8];
  return {
    name: "siluMul",
    params: ["i32", "i32", "i32", "i32"],
    locals: ["i32", "v128", "v128", "v128", "v128"],
    body: loopWhile(get(tokens), [
      set(end, iadd(get(x), get(rowBytes))),
      loopWhile(lessThan(get(x), get(end)), [
        set(g, vload(get(x))),
        set(a, vnegate(get(g))),
        vstore(get(out), vmul(vdiv(get(g), vadd(exp(a, n, y), splat(f32(1)))), vload(iadd(get(x), get(rowBytes))))),
        bump(x, 16),
        bump(out, 16),
      ]),
      bump(x, get(rowBytes)),
      set(tokens, isub(get(tokens), i32(1))),
    ]),
  };
}

function add(): WasmFunction {
  const [x, y, bytes, end] = [0, 1, 2, 3];
  return {
    name: "add",
    params: ["i32", "i32", "i32"],
    locals: ["i32"],
    body: [
      set(end, iadd(get(x), get(bytes))),
      loopWhile(lessThan(get(x), get(end)), [
        vstore(get(x), vadd(vload(get(x)), vload(get(y)))),
        bump(x, 16),
        bump(y, 16),
      ]),
    ],
  };
}

let module: Module | undefined;

/** Instantiates the kernels over `memory`. They are compiled once per thread. */
export function kernelsOver(memory: Memory): Kernels {
  module ??= compile(assemble([matmul(), rmsnorm(), rope(), attend(), siluMul(), add()]));
  return instantiate<Kernels>(module, memory);
}
