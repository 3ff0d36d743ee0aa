/** What ranks print: cut into whole lines, so that the lines of several ranks never tear each other. */

import { show } from "../../core/index.ts";

export type OutputStream = "stdout" | "stderr";

/** One line that a rank printed, without its line end. */
export interface OutputLine {
  readonly rank: number;
  readonly stream: OutputStream;
  readonly text: string;
}

/** A line longer than this is given out in parts: a rank that never ends its line must not fill the memory. */
const MAX_LINE_CHARS = 1 << 26;

/** Gathers the chunks of one rank's stream and gives out whole lines. */
export class LineSplitter {
  readonly #emit: (text: string) => void;
  readonly #maxChars: number;
  /** The parts of a line that has not ended: joined once, for a long line comes in many. */
  #parts: string[] = [];
  #numChars = 0;

  constructor(emit: (text: string) => void, maxChars = MAX_LINE_CHARS) {
    this.#emit = emit;
    this.#maxChars = maxChars;
  }

  push(chunk: string): void {
    const pieces = chunk.split("\n");
    const last = pieces.pop() ?? "";
    for (const piece of pieces) {
      const line = this.#take() + piece;
      this.#emit(line.endsWith("\r") ? line.slice(0, -1) : line);
    }
    if (last !== "") this.#parts.push(last);
    this.#numChars += last.length;
    if (this.#numChars <= this.#maxChars) return;
    let rest = this.#take();
    for (; rest.length > this.#maxChars; rest = rest.slice(this.#maxChars)) this.#emit(rest.slice(0, this.#maxChars));
    this.push(rest);
  }

  /** Gives out a last line that has no line end. */
  flush(): void {
    const rest = this.#take();
    if (rest !== "") this.#emit(rest);
  }

  #take(): string {
    const text = this.#parts.join("");
    this.#parts = [];
    this.#numChars = 0;
    return text;
  }
}

/** Prints a line as `[rank] text` on this process's stdout or stderr, in one write. */
function printLine({ rank, stream, text }: OutputLine): void {
  process[stream].write(`[${rank}] ${text}\n`);
}

/** Gives lines to a listener, or prints them. A listener that throws is told of, and gets no more. */
export function outputSink(
  listener: ((line: OutputLine) => void) | undefined,
  onError: (error: Error) => void,
): (line: OutputLine) => void {
  let isOver = false;
  return (line) => {
    if (isOver) return;
    try {
      (listener ?? printLine)(line);
    } catch (error) {
      isOver = true;
      onError(error instanceof Error ? error : new Error(`onOutput threw ${show(error)}`));
    }
  };
}

/** Gives out the lines of one rank. It keeps nothing else of the rank: lines may come when that is long gone. */
export function linesOf(rank: number, emit: (line: OutputLine) => void): (stream: OutputStream, text: string) => void {
  return (stream, text) => emit({ rank, stream, text });
}
