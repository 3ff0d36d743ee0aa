/**
 * What members of a group tell each other as they open what calls need (a plan's kernel, an epilogue's): whether each has its part,
 * and what kept it from that. So either all of them go on with it, or none does and all know why.
 */
import { ChoraleError, UnsupportedError } from "../../../core/index.ts";

/** What a member says, in words of 4 bytes: whether it has its part, of which kernel, where, and why not. */
export const SAID = { answer: 0, kernel: 1, note: 2, text: 24, words: 24 + 64 } as const;
/** `early`: not while calls of other groups run on its device. `late`: nor has it any more patience. */
export const ANSWERS = { ready: 0, failed: 1, early: 2, late: 3 } as const;

interface Round {
  /** What is opened, for people. */
  readonly name: string;
  readonly words: Int32Array;
  /** Makes this member's part; absent where that is not to be done now, for which the words have the answer. */
  readonly make: (() => void) | undefined;
  /** Tells all members the words of each. Blocks until all have come. @throws the group's failure */
  readonly tell: (words: Int32Array) => readonly Int32Array[];
}

/**
 * One round: every member makes its part, if it may, and hears of all others.
 * @returns what all said, and why no member can use its part, where one could not make it: here what kept it, elsewhere who it was
 * @throws the group's failure, and what `make` throws that is no error of chorale's
 */
export function tellParts({ name, words, make, tell }: Round): {
  readonly said: readonly Int32Array[];
  readonly refusal: ChoraleError | undefined;
} {
  const error = make && attempt(words, make);
  const said = tell(words);
  const failed = said.findIndex((one) => one[SAID.answer] === ANSWERS.failed);
  return { said, refusal: failed < 0 ? undefined : (error ?? toldBy(failed, said[failed] as Int32Array, name)) };
}

/** Runs `fn`; what it throws goes into the words, for the others, and is returned. */
function attempt(words: Int32Array, fn: () => void): ChoraleError | undefined {
  try {
    fn();
    return undefined;
  } catch (error) {
    if (!(error instanceof ChoraleError)) throw error;
    words[SAID.answer] = ANSWERS.failed;
    const room = new Uint8Array(words.buffer, 4 * SAID.text);
    new TextEncoder().encodeInto(error.message, room);
    return error;
  }
}

function toldBy(rank: number, words: Int32Array, name: string): ChoraleError {
  const bytes = new Uint8Array(words.slice(SAID.text).buffer);
  const end = bytes.indexOf(0);
  const text = new TextDecoder().decode(bytes.subarray(0, end < 0 ? bytes.length : end));
  return new UnsupportedError(name, `rank ${rank} cannot run it: ${text}`);
}
