/** The training data: three interleaved spirals in the plane, which no straight line separates. */

export interface Sample {
  readonly input: readonly [number, number];
  readonly label: number;
}

/** mulberry32: numbers in [0, 1). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function spirals(numSamples: number, random: () => number): Sample[] {
  return Array.from({ length: numSamples }, (_, i) => {
    const label = i % 3;
    const radius = 0.1 + (0.9 * i) / numSamples;
    const angle = 4 * radius + (label * 2 * Math.PI) / 3 + 0.2 * (random() - 0.5);
    return { input: [radius * Math.sin(angle), radius * Math.cos(angle)], label };
  });
}
