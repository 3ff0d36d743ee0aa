/**
 * What a schedule takes at a finite size, when its data is cut into pieces that follow each other along trees of some
 * height: with p pieces (p + H - 1) * (latency + fluid / p), least at p = sqrt((H - 1) * fluid / latency), where it is
 * about (sqrt(fluid) + sqrt((H - 1) * latency))^2.
 */

/** The best number of pieces, 1 to `most`. @param fluidUs the time by bandwidth alone; @param latencyUs of one step */
export function piecesFor(height: number, latencyUs: number, fluidUs: number, most = 64): number {
  if (height <= 1 || !(latencyUs > 0)) return 1;
  return Math.min(most, Math.max(1, Math.round(Math.sqrt(((height - 1) * fluidUs) / latencyUs))));
}

/** Time with a number of pieces, us. */
export function pipelinedTime(height: number, latencyUs: number, fluidUs: number, pieces: number): number {
  return (pieces + Math.max(height, 1) - 1) * (latencyUs + fluidUs / pieces);
}
