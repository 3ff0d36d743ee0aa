/**
 * What each member of a group tells all others, notice by notice: a ring of a few that its member writes and everybody reads. All
 * members tell as many. One may be overwritten once every member has read that number.
 */
import { HEAD_WORDS, NOTICE_WORDS, NOTICES } from "./control-layout.ts";
import { markOf, readCount, writeCount } from "./counts.ts";

export class Bulletin {
  readonly #words: Int32Array;
  readonly #places: readonly number[];
  readonly #member: number;
  /** How many this member has told. */
  #numTold = 0;

  /** @param places first words of the members' rings */
  constructor(words: Int32Array, places: readonly number[], member: number) {
    this.#words = words;
    this.#places = places;
    this.#member = member;
  }

  /**
   * Tells notice `number`, from 0 in order; once, however often it is called.
   * @param words at most NOTICE_WORDS - 1
   * @returns false, with nothing told, while a member has not read the one that it would overwrite
   */
  tell(number: number, words: () => ArrayLike<number>): boolean {
    if (number < this.#numTold) return true;
    if (this.#places.some((at) => number - readCount(this.#words, at) >= NOTICES)) return false;
    const at = this.#notice(this.#member, number);
    this.#words.set(words(), at + 1);
    Atomics.store(this.#words, at, markOf(number));
    this.#numTold = number + 1;
    return true;
  }

  /** What all members have told as `number`, this one's too; `undefined` until all have. Read it once. */
  read(number: number): readonly Int32Array[] | undefined {
    if (this.#places.some((_, member) => !this.hasTold(member, number))) return undefined;
    const notices = this.#places.map((_, member) => this.#notice(member, number));
    const read = notices.map((at) => this.#words.slice(at + 1, at + NOTICE_WORDS));
    writeCount(this.#words, this.#places[this.#member] as number, number + 1);
    return read;
  }

  /** Whether a member has told notice `number`, which this one has not read yet. */
  hasTold(member: number, number: number): boolean {
    return Atomics.load(this.#words, this.#notice(member, number)) === markOf(number);
  }

  #notice(member: number, number: number): number {
    return (this.#places[member] as number) + HEAD_WORDS + (number % NOTICES) * NOTICE_WORDS;
  }
}
