/** What ranks print: cut into whole lines, so that the lines of several ranks never tear each other. */

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
  #rest = "";

  constructor(emit: (text: string) => void, maxChars = MAX_LINE_CHARS) {
    this.#emit = emit;
    this.#maxChars = maxChars;
  }

  push(chunk: string): void {
    const lines = (this.#rest + chunk).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) this.#emit(line.endsWith("\r") ? line.slice(0, -1) : line);
    while (this.#rest.length > this.#maxChars) {
      this.#emit(this.#rest.slice(0, this.#maxChars));
      this.#rest = this.#rest.slice(this.#maxChars);
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
