/**
 * Rotary position embeddings: the inverse frequencies of each pair of dims, and their scaling (transformers,
 * modeling_rope_utils.py; "llama3" is that of the Llama 3.1 release).
 */
import type { LlamaConfig } from "chorale/formats";

/** headDim / 2 inverse frequencies, rounded to f32 as transformers has them. */
export function inverseFrequencies({ headDim, ropeTheta, ropeScaling }: LlamaConfig): Float32Array {
  return Float32Array.from({ length: headDim / 2 }, (_, i) => {
    const plain = ropeTheta ** ((-2 * i) / headDim);
    switch (ropeScaling.kind) {
      case "default":
        return plain;
      case "linear":
        return plain / ropeScaling.factor;
      case "llama3": {
        const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = ropeScaling;
        const turns = (originalMaxPositions * plain) / (2 * Math.PI);
        if (turns < lowFreqFactor) return plain / factor;
        if (turns > highFreqFactor) return plain;
        const smooth = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
        return ((1 - smooth) * plain) / factor + smooth * plain;
      }
    }
  });
}

/** Fills `cos` and `sin`, [positions][stride], with the angles of positions 0, 1, 2... */
export function fillRotations(frequencies: Float32Array, cos: Float32Array, sin: Float32Array, stride: number): void {
  for (let at = 0, position = 0; at < cos.length; at += stride, position++) {
    for (let i = 0; i < frequencies.length; i++) {
      const angle = Math.fround(position * frequencies[i]!);
      cos[at + i] = Math.cos(angle);
      sin[at + i] = Math.sin(angle);
    }
  }
}
