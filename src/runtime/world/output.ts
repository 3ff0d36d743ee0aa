/** What ranks print: cut into whole lines, so that the lines of several ranks never tear each other. */

export type OutputStream = "stdout" | "stderr";

/** One line that a rank printed, without its line end. */
export interface OutputLine {
  readonly rank: number;
  readonly stream: OutputStream;
  readonly text: string;
}

/** A line longer than this is given out in parts: a rank that never ends its line must not fill the memory. */
const MAX_LINE_CHARS = 1 << 20;

/** Gathers the chunks of one rank's stream and gives out whole lines. */
export class LineSplitter {
  readonly #emit: (text: string) => void;
  #rest = "";

  constructor(emit: (text: string) => void) {
    this.#emit = emit;
  }

  push(chunk: string): void {
    const lines = (this.#rest + chunk).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#emit(line.endsWith("\r") ? line.slice(0, -1) : line);
    while (this.#rest.length > MAX_LINE_CHARS) {
      this.#emit(this.#rest.slice(0, MAX_LINE_CHARS));
      this.#rest = this.#rest.slice(MAX_LINE_CHARS);
    }
  }

  /** Gives out a last line that has no line end. */
  flush(): void {
    if (this.#rest !== "") this.#emit(this.#rest);
    this.#rest = "";
  }
}

/** Prints a line as `[rank] text` on this process's stdout or stderr, in one write. */
export function printLine({ rank, stream, text }: OutputLine): void {
  process[stream].write(`[${rank}] ${text}\n`);
}
