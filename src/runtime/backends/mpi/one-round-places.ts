/** Where the members of a group meet for reductions in one round (one-round-reduction.ts), and the kernels' tables of their inputs. */
import { type HostArena, MEETING } from "./host-arena.ts";

/** One of the two places that calls of a group use in turn. Numbers are addresses in the arena. */
export interface MeetingHalf {
  /** First words of the members' meeting places. */
  readonly meetings: readonly number[];
  /** This rank's input, in its meeting place and apart from it. */
  readonly inputs: readonly [within: number, apart: number];
  /** Tables of all members' inputs, for the reduction kernels. */
  readonly tables: readonly [within: number, apart: number];
  readonly result: number;
  readonly resultTable: number;
}

/** Where the members of a group meet for reductions in one round. */
export class OneRoundPlaces {
  readonly halves: readonly [MeetingHalf, MeetingHalf];
  readonly #arena: HostArena;
  readonly #tables: number;

  constructor(arena: HostArena, place: number, ranks: readonly number[], me: number) {
    const own = ranks[me] ?? 0;
    const wordsOfHalf = 2 * ranks.length + 1;
    const words = arena.words();
    const tables = arena.allocate(4 * 2 * wordsOfHalf);
    this.#arena = arena;
    this.#tables = tables;
    const halfOf = (half: 0 | 1): MeetingHalf => {
      const at = tables + 4 * half * wordsOfHalf;
      const apart = at + 4 * ranks.length;
      const resultTable = apart + 4 * ranks.length;
      const result = arena.share(place, own, half);
      const inputsOf = (rank: number) =>
        [arena.meeting(place, rank, half) + MEETING.inputAt, arena.input(place, rank, half)] as const;
      for (const [i, rank] of ranks.entries()) {
        const inputs = inputsOf(rank);
        words[at / 4 + i] = inputs[0];
        words[apart / 4 + i] = inputs[1];
      }
      words[resultTable / 4] = result;
      const meetings = ranks.map((rank) => arena.meeting(place, rank, half) / 4);
      return { meetings, inputs: inputsOf(own), tables: [at, apart], result, resultTable };
    };
    this.halves = [halfOf(0), halfOf(1)];
  }

  close(): void {
    this.#arena.free(this.#tables);
  }
}
