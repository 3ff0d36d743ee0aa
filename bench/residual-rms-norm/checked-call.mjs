/**
 * One call of allReduceResidualRmsNorm on the devices of a group, whose results are compared with f64: what bench/residual-rms-norm.mjs
 * checks, and what it times. Inputs follow from a seed, so that every rank knows those of all.
 */
import { allReduceResidualRmsNorm } from "chorale/extensions";

/** Half the distance from 1 to the next number, and half that of the numbers next to 0. */
const ROUNDING = { f32: [2 ** -24, 2 ** -150], f16: [2 ** -11, 2 ** -25], bf16: [2 ** -8, 2 ** -134] };

/** Elements of a type as numbers. */
function numbers(dtype, array) {
  if (dtype === "f32") return array;
  const bits = new Uint32Array(array.length);
  if (dtype === "bf16") {
    for (let i = 0; i < array.length; i++) bits[i] = array[i] << 16;
    return new Float32Array(bits.buffer);
  }
  return Float64Array.from(array, (half) => {
    const [sign, exponent, fraction] = [half & 0x8000 ? -1 : 1, (half >> 10) & 31, half & 0x3ff];
    if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
    return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
  });
}

/** Numbers from -4 to 4, of as many bits as the type has. */
function randomValues(dtype, count, seed) {
  let state = seed | 0;
  const next = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return (t ^ (t >>> 14)) >>> 0;
  };
  if (dtype === "f32") return Float32Array.from({ length: count }, () => next() / 2 ** 29 - 4);
  // Any sign and fraction; exponents that give 2^-5 to 4.
  const [fractionBits, bias] = dtype === "f16" ? [10, 15] : [7, 127];
  return Uint16Array.from({ length: count }, () => {
    const bits = next();
    const exponent = bias - 5 + ((bits >>> 16) % 7);
    return (bits & 0x8000) | (exponent << fractionBits) | (bits & ((1 << fractionBits) - 1));
  });
}

const newArray = (dtype, count) => (dtype === "f32" ? new Float32Array(count) : new Uint16Array(count));

export class CheckedCall {
  /** @param shift elements by which buffers are shifted: memory that is not aligned */
  constructor(world, { dtype, weight = dtype, rows, hidden, eps = 1e-5, seed, inPlace = false, shift = 0 }) {
    Object.assign(this, { world, dtype, weightType: weight, rows, hidden, eps, seed, inPlace });
    const count = rows * hidden;
    this.tensors = [];
    const make = (type, size) => {
      const whole = world.tensor(type, [size + shift]);
      this.tensors.push(whole);
      return whole.slice(shift, shift + size);
    };
    this.input = make(dtype, count);
    this.residual = make(dtype, count);
    this.weight = make(weight, hidden);
    this.output = inPlace ? this.input : make(dtype, count);
    this.residualOutput = inPlace ? this.residual : make(dtype, count);
  }

  values(what, rank = 0) {
    const { dtype, weightType, seed, rows, hidden } = this;
    if (what === "weight") return randomValues(weightType, hidden, seed * 31 + 1);
    return randomValues(dtype, rows * hidden, seed * 31 + (what === "residual" ? 2 : 3 + rank));
  }

  /** Fresh inputs, and poison where results go. */
  fill() {
    const { world, dtype } = this;
    const poison = newArray(dtype, this.output.size).fill(dtype === "f32" ? Number.NaN : 0x7fff);
    world.upload(this.output, poison);
    world.upload(this.residualOutput, poison);
    world.upload(this.input, this.values("input", world.rank));
    world.upload(this.residual, this.values("residual"));
    world.upload(this.weight, this.values("weight"));
  }

  issue(comm, options) {
    const { input, residual, weight, output, residualOutput, eps } = this;
    return allReduceResidualRmsNorm(comm, { input, residual, weight, output, residualOutput, eps, ...options });
  }

  /** Bytes of both results, to be compared with others. */
  results() {
    return [this.output, this.residualOutput].map((tensor) => this.world.download(tensor));
  }

  /** How many elements are outside of the bounds of docs/extensions.md, on this rank. */
  wrong() {
    const { dtype, weightType, rows, hidden, eps, world } = this;
    const [output, residual] = this.results().map((array) => numbers(dtype, array));
    const [unit, least] = ROUNDING[dtype];
    const inputs = Array.from({ length: world.size }, (_, rank) => numbers(dtype, this.values("input", rank)));
    const terms = [...inputs, numbers(dtype, this.values("residual"))];
    const weight = numbers(weightType, this.values("weight"));
    let wrong = 0;
    for (let row = 0; row < rows; row++) {
      let squares = 0;
      for (let i = row * hidden; i < (row + 1) * hidden; i++) {
        let [exact, size] = [0, 0];
        for (const term of terms) {
          exact += term[i];
          size += Math.abs(term[i]);
        }
        if (!(Math.abs(residual[i] - exact) <= terms.length * (unit * size + least))) wrong++;
        squares += residual[i] * residual[i];
      }
      const scale = 1 / Math.sqrt(squares / hidden + Math.fround(eps));
      for (let i = 0; i < hidden; i++) {
        const exact = residual[row * hidden + i] * scale * weight[i];
        const bound = (unit + (hidden / 64 + 12) * 2 ** -24) * Math.abs(exact) + least;
        if (!(Math.abs(output[row * hidden + i] - exact) <= bound)) wrong++;
      }
    }
    return wrong;
  }

  free() {
    for (const tensor of this.tensors) this.world.free(tensor);
  }
}
