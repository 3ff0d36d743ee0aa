/** Where the lines of ranks go: to the launcher's output, and to files of each rank. */
import { appendFileSync, closeSync, openSync } from "node:fs";
import { join } from "node:path";
import type { OutputLine, OutputStream } from "../../runtime/world/index.ts";
import { makeOutputFolder } from "./write-output.ts";

const ENDING: Readonly<Record<OutputStream, string>> = { stdout: "out", stderr: "err" };

export interface RankOutputOptions {
  /** Every line is also appended to a file of its rank here. */
  readonly folder: string | undefined;
  /** Printed lines begin with `[rank]`. */
  readonly isPrefixed: boolean;
}

export class RankOutput {
  readonly #folder: string | undefined;
  readonly #isPrefixed: boolean;
  readonly #files = new Map<string, number>();

  /** @throws InvalidArgumentError when the folder cannot be made */
  constructor({ folder, isPrefixed }: RankOutputOptions) {
    this.#folder = folder;
    this.#isPrefixed = isPrefixed;
    if (folder === undefined) return;
    makeOutputFolder("--log-dir", folder);
  }

  /** Prints a line, and appends it to the rank's file. */
  readonly take = ({ rank, stream, text }: OutputLine): void => {
    process[stream].write(this.#isPrefixed ? `[${rank}] ${text}\n` : `${text}\n`);
    if (this.#folder === undefined) return;
    const name = `rank-${rank}.${ENDING[stream]}`;
    let fd = this.#files.get(name);
    if (fd === undefined) {
      fd = openSync(join(this.#folder, name), "a", 0o600);
      this.#files.set(name, fd);
    }
    appendFileSync(fd, `${text}\n`);
  };

  close(): void {
    for (const fd of this.#files.values()) closeSync(fd);
    this.#files.clear();
  }
}
