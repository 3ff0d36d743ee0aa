/** Checks of what a call of the language is given: types refuse most of it, but user files are run without being compiled. */
import type { RawChunk, Recorder } from "../compiler/index.ts";

/** Refuses what is not a chunk, such as a buffer or a rank in its place. @param call how the operation is called */
export function needChunk(recorder: Recorder, value: RawChunk, argument: string, call: string): void {
  const chunk: Partial<RawChunk> | null | undefined = value;
  if (typeof chunk?.rank === "number" && typeof chunk.buffer === "number" && typeof chunk.size === "number") return;
  const accepted = `a chunk (buffer.at(i), buffer.slice(start, end), buffer.all), as in ${call}`;
  recorder.need(false, argument, value, accepted);
}

/** Refuses a destination or a source that is not a chunk. */
export function needTwo(recorder: Recorder, dst: RawChunk, src: RawChunk, call: string): void {
  needChunk(recorder, dst, "dst", call);
  needChunk(recorder, src, "src", call);
}

/** Refuses what is not a list of chunks. */
export function needChunks(recorder: Recorder, list: readonly RawChunk[], argument: string, call: string): void {
  recorder.need(Array.isArray(list), argument, list, `a list of chunks, as in ${call}`);
  for (const chunk of list) needChunk(recorder, chunk, `a chunk of ${argument}`, call);
}

/** Refuses what does not number a chunk of the buffer that a switch channel spans. */
export function needOffset(recorder: Recorder, offset: number): void {
  const is = Number.isInteger(offset) && offset >= 0;
  recorder.need(is, "offset on the switch", offset, "the number of a chunk, 0 or more");
}
