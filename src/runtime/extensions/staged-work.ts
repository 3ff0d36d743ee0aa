/** The work of a call that is several collectives, with steps of this thread between them. */
import { checkWait, PendingWork, runningTime, type Work } from "../comm/index.ts";

/** Gives the collectives one after the other, and gets their results, or has them throw. What it returns is the call's. */
export type Stages<T> = Generator<Work<unknown>, T, unknown>;

/** Works whose turn has come. Each starts when the one before has returned, not inside of it: thousands that fail need no deeper stack. */
const starting: (() => void)[] = [];
let isStarting = false;
function startInTurn(start: () => void): void {
  starting.push(start);
  if (isStarting) return;
  isStarting = true;
  try {
    for (let next = starting.shift(); next !== undefined; next = starting.shift()) next();
  } finally {
    isStarting = false;
  }
}

export class StagedWork<T> extends PendingWork<T> {
  readonly #stages: () => Stages<T>;
  /** The call before this one, whose stages come first. */
  #before: StagedWork<unknown> | undefined;
  #running: Stages<T> | undefined;
  #current: Work<unknown> | undefined;

  constructor(
    seq: number,
    op: string,
    group: string,
    stages: () => Stages<T>,
    before: StagedWork<unknown> | undefined,
  ) {
    super(seq, op, group);
    this.#stages = stages;
    this.#before = before?.settled === true ? undefined : before;
    if (this.#before === undefined) this.#start();
    else this.#before.onSettled = () => startInTurn(() => this.#start());
  }

  #start(): void {
    if (this.state !== "queued") return;
    this.#before = undefined;
    this.state = "running";
    try {
      this.#running = this.#stages();
    } catch (error) {
      this.fail(error);
      return;
    }
    this.#goOn((stages) => stages.next());
  }

  /** Runs the steps up to the next collective. */
  #goOn(resume: (stages: Stages<T>) => IteratorResult<Work<unknown>, T>): void {
    try {
      const { done, value } = resume(this.#running as Stages<T>);
      if (done === true) {
        this.complete(value);
        return;
      }
      this.#current = value;
      // The event loop drives it too: members must not wait until somebody asks for the result here.
      const isCurrent = () => this.#current === value && !this.settled;
      value.then(
        (next) => {
          if (isCurrent()) this.#goOn((stages) => stages.next(next));
        },
        (error) => {
          if (isCurrent()) this.#goOn((stages) => stages.throw(error));
        },
      );
    } catch (error) {
      this.fail(error);
    }
  }

  wait(options?: { timeoutMs?: number }): T {
    if (options !== undefined) checkWait(options);
    this.seen = true;
    const until = options?.timeoutMs === undefined ? undefined : runningTime() + options.timeoutMs;
    const left = () => (until === undefined ? {} : { timeoutMs: Math.max(1, until - runningTime()) });
    const works: StagedWork<unknown>[] = [];
    for (let one: StagedWork<unknown> | undefined = this as StagedWork<unknown>; one !== undefined; one = one.#before) {
      works.push(one);
    }
    for (const one of works.reverse()) one.#drive(left);
    return this.result();
  }

  /** Waits for all stages; those of the works before have ended. @throws TimeoutError when the time is up */
  #drive(left: () => { timeoutMs?: number }): void {
    while (!this.settled) {
      const current = this.#current as Work<unknown>;
      let result: unknown;
      try {
        result = current.wait(left());
      } catch (error) {
        // What is still under way was only waited for too long.
        if (current.state !== "done" && current.state !== "failed") throw error;
        if (this.#current === current && !this.settled) this.#goOn((stages) => stages.throw(error));
        continue;
      }
      if (this.#current === current && !this.settled) this.#goOn((stages) => stages.next(result));
    }
  }

  protected onAwaited(): void {}
}

/** Works of an extension that are pending, or that failed without anybody's notice: its communicator tells of those when it closes. */
export class OpenWorks {
  #works: StagedWork<unknown>[] = [];

  add(work: StagedWork<unknown>): void {
    this.#works = this.#works.filter((one) => !one.settled || isUnseen(one));
    this.#works.push(work);
  }

  /** Waits until a work has settled. Nobody has looked at it by that. */
  async end(work: StagedWork<unknown> | undefined): Promise<void> {
    if (work === undefined || work.settled) return;
    // Not by `then`: that counts as looking at it.
    await new Promise<void>((resolve) => {
      work.onSettled = resolve;
    });
  }

  /** Waits for all: of works that are not made one after another. */
  async endAll(): Promise<void> {
    for (const work of this.#works) await this.end(work);
  }

  /** @throws the failure of a work that nobody looked at */
  report(): void {
    const unseen = this.#works.find(isUnseen);
    if (unseen !== undefined) throw unseen.error;
  }
}

const isUnseen = (work: StagedWork<unknown>) => work.state === "failed" && !work.seen;
