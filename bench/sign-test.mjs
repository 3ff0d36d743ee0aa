/** Medians, and the intervals that hold them by the sign test, which assumes no distribution: for benchmarks that compare by rounds. */

export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = values.length >> 1;
  return values.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Which of `count` sorted values, counted from either end, bound their median with 95 %; the first and the last of fewer than 6. */
export function intervalOf(count) {
  let chance = 2 ** -count;
  let below = chance;
  for (let rank = 1; ; rank++) {
    chance *= (count - rank + 1) / rank;
    below += chance;
    if (below > 0.025) return rank - 1;
  }
}
