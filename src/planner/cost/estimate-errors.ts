/** Written by bench/planner-accuracy.mjs; do not edit. Ratios of estimate to published by engine and what is estimated: 10th and 90th percentile, and their number. */
export const ESTIMATE_ERRORS: Readonly<Record<string, readonly [low: number, high: number, count: number]>> = {};
