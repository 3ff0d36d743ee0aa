/**
 * What an engine's launcher passes on of its ranks, line by line: `[1,RANK]<stdout>:text` of Open MPI, `[RANK] text` of MPICH.
 * Open MPI reads some kilobytes at a time and tags each piece: a longer line has tags in its midst, and the rest of it
 * may follow behind what another rank wrote.
 */
import type { OutputStream } from "./output.ts";

const OF_OPEN_MPI = /\[\d+,(\d+)\]<(stdout|stderr)>:/g;
const OF_MPICH = /^\[(\d+)\] (.*)$/;

/** A piece of what a rank wrote. */
interface TaggedPiece {
  readonly rank: number;
  /** Undefined where the launcher does not say it. */
  readonly stream: OutputStream | undefined;
  readonly text: string;
  /** Its line ends here. */
  readonly isEnd: boolean;
}

/** The pieces of a line; none where the launcher itself wrote it. */
export function taggedPieces(line: string): readonly TaggedPiece[] {
  const tags = [...line.matchAll(OF_OPEN_MPI)];
  if (tags[0]?.index === 0) {
    return tags.map(({ 0: tag, 1: rank, 2: stream, index }, i) => {
      const next = tags[i + 1];
      const text = line.slice(index + tag.length, next?.index);
      return { rank: Number(rank), stream: stream as OutputStream, text, isEnd: next === undefined };
    });
  }
  const [, rank, text = ""] = OF_MPICH.exec(line) ?? [];
  return rank === undefined ? [] : [{ rank: Number(rank), stream: undefined, text, isEnd: true }];
}
