/** What the ranks of a tuning world are asked for, and what they give. */
import type { Contender, ProgramJob } from "../bench/internal.ts";

export interface TuneJob extends Omit<ProgramJob, "contenders" | "sizes"> {
  /** What serves now: others have to be clearly faster. */
  readonly base: Contender;
  /** What is measured for comparison, and never chosen. */
  readonly beside: readonly Contender[];
  /** Whether what is chosen also serves calls in place. */
  readonly servesInPlace: boolean;
  /** What is measured at each size, beside `base`. */
  readonly sizes: readonly {
    readonly sizeBytes: number;
    readonly labels: readonly string[];
    /** Calls of a graph whose replay is timed; the calls themselves where absent. */
    readonly graphCalls?: number;
  }[];
  /** Where labels are more: the fastest ones of one loop each are measured. */
  readonly most?: number;
  /** Whether those that look faster in graphs are timed as direct calls too. */
  readonly asksDirect?: boolean;
  /** Whether calls may be refused by a label. */
  readonly mayRefuse: boolean;
  readonly numRanks: number;
  /** Loops of the second look, at those that looked faster than `base`. */
  readonly secondRepeats: number;
  /** Time after which no further size is begun, ms since the start. */
  readonly budgetMs: number;
}

/** One contender's figures at one size. */
export interface TuneFigure {
  readonly label: string;
  /** What serves captured calls, whose time this is, where that is another one. */
  readonly captured?: string;
  readonly timeUs: number;
  /** Wrong elements over all ranks. */
  readonly wrong: number;
}

/** The time of `base` over a contender's, loop by loop in turn. */
export interface SecondLook {
  readonly label: string;
  readonly ratios: readonly number[];
  /** The same of either's fastest loop: what else the machine does can only make loops slower. */
  readonly ofFastest: number;
  /** With the result on top of the input; none where the operation has no such form. */
  readonly inPlaceRatios: readonly number[];
  /** Of direct calls, where the others are of graphs and that was asked. */
  readonly directRatios: readonly number[];
}

/** What the ranks found. */
export interface TuneReport {
  readonly numRanks: number;
  readonly readings: readonly TuneReading[];
  /** How tables name what the ranks ran on, where the backend says so. */
  readonly topology: string | undefined;
}

/** One size, as measured. */
export interface TuneReading {
  readonly sizeBytes: number;
  readonly base: TuneFigure;
  /** In the job's order. */
  readonly beside: readonly TuneFigure[];
  readonly others: readonly TuneFigure[];
  /** Of the second look, where there was one. */
  readonly second: readonly SecondLook[];
}
