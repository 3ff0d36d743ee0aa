/**
 * Time in which this thread could do something. A process that was stopped (Ctrl-Z, SIGSTOP, a debugger, a suspended
 * laptop or container) finds its deadlines passed when it goes on, although its peers, stopped with it, are healthy and
 * the data may be there. Deadlines therefore count the time between looks, and a pause between two looks that is far
 * longer than any that chorale makes counts as nothing.
 */

/**
 * A longer pause between two looks was no pause of ours, ms: waits look at least once a second (`MAX_SLEEP_MS` of the
 * threads driver), pollers every 10 ms.
 */
export const STOPPED_MS = 3000;

/** When this thread looked last, and how long it was stopped, ms: in an array, where writing a number allocates nothing. */
const clock = Float64Array.of(performance.now(), 0);

/**
 * How long this thread has run, ms, without the times that it was stopped: a deadline compares two of these.
 * @param now as `performance.now()` has it, where it is at hand
 */
export function runningTime(now: number = performance.now()): number {
  const pauseMs = now - clock[0]!;
  if (pauseMs > STOPPED_MS) clock[1]! += pauseMs;
  // A time that was taken earlier does not turn the clock back.
  if (pauseMs > 0) clock[0] = now;
  return now - clock[1]!;
}

/** How often a long timer looks, ms. */
const LOOK_MS = 1000;

/** A timer of running time. */
export interface RunningTimer {
  cancel(): void;
}

/**
 * Calls back when this thread has run for `ms`, as `setTimeout` does where nothing was stopped. It keeps the event loop
 * alive unless `isIdle`. What has come from sockets and other threads by then is heard first: a thread that did not run for
 * a while finds timers due and answers waiting, and Node would call the timers first. While it waits, `runningTime` counts.
 */
export function afterRunning(ms: number, then: () => void, isIdle = false): RunningTimer {
  let timer: NodeJS.Timeout;
  let last: NodeJS.Immediate | undefined;
  let leftMs = ms;
  const look = () => {
    const sliceMs = Math.min(leftMs, LOOK_MS);
    const beganMs = performance.now();
    timer = setTimeout(() => {
      const passedMs = performance.now() - beganMs;
      leftMs -= passedMs > sliceMs + STOPPED_MS ? sliceMs : passedMs;
      runningTime();
      // Timers of Node may come a millisecond early.
      if (leftMs > 1 && sliceMs === LOOK_MS) look();
      else last = setImmediate(then);
    }, sliceMs);
    if (isIdle) timer.unref();
  };
  look();
  return {
    cancel() {
      clearTimeout(timer);
      clearImmediate(last);
    },
  };
}
