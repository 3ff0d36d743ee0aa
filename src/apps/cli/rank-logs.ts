/** What each rank prints, in files of its own beside the launcher's output. */
import { appendFileSync, closeSync, mkdirSync, openSync } from "node:fs";
import { join } from "node:path";
import { InvalidArgumentError } from "../../core/index.ts";
import type { OutputLine, OutputStream } from "../../runtime/world/index.ts";

const ENDING: Readonly<Record<OutputStream, string>> = { stdout: "out", stderr: "err" };

export class RankLogs {
  readonly #folder: string;
  readonly #files = new Map<string, number>();

  /** @throws InvalidArgumentError when the folder cannot be made */
  constructor(folder: string) {
    this.#folder = folder;
    try {
      mkdirSync(folder, { recursive: true });
    } catch (cause) {
      throw new InvalidArgumentError("--log-dir", folder, `a folder (${(cause as Error).message})`);
    }
  }

  /** Prints a line as the launcher does otherwise, and appends it to the rank's file. */
  readonly take = ({ rank, stream, text }: OutputLine): void => {
    process[stream].write(`[${rank}] ${text}\n`);
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
