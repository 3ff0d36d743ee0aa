/**
 * Messages between the launcher and a rank that is a process, over a socket pair: `magic, length, value`, the value as
 * V8 serialises it. That is what `postMessage` to a worker thread does too, so data and results keep their meaning:
 * typed arrays, maps, errors and cycles survive, views of one buffer stay views of one buffer, functions are refused.
 * Node's own IPC channel is not used: it sends in the background, so that the last words of a rank that dies get lost.
 */
import { Deserializer, Serializer } from "node:v8";
import { FormatError } from "../../core/index.ts";

const MAGIC = 0x6b6e7266;
const HEADER_BYTES = 8;
/** Largest message: what its length can say. */
const MAX_FRAME_BYTES = 2 ** 32 - 1 - HEADER_BYTES;

/** Encodes one message. @throws DOMException `DataCloneError`, as `postMessage` does */
export function encodeFrame(message: unknown): Buffer {
  const serializer = new Serializer();
  let bytes: Buffer;
  try {
    serializer.writeHeader();
    serializer.writeValue(message);
    bytes = serializer.releaseBuffer();
  } catch (cause) {
    throw new DOMException(cause instanceof Error ? cause.message : String(cause), "DataCloneError");
  }
  if (bytes.length > MAX_FRAME_BYTES) {
    throw new DOMException(`${bytes.length} bytes are too many to be copied to another process`, "DataCloneError");
  }
  const head = Buffer.alloc(HEADER_BYTES);
  head.writeUInt32LE(MAGIC, 0);
  head.writeUInt32LE(bytes.length, 4);
  return Buffer.concat([head, bytes]);
}

/** Puts chunks together and gives out whole messages. */
export class FrameReader {
  readonly #emit: (message: unknown) => void;
  #chunks: Buffer[] = [];
  #have = 0;
  #need = HEADER_BYTES;

  constructor(emit: (message: unknown) => void) {
    this.#emit = emit;
  }

  /** @throws FormatError when the bytes are no messages: nothing can be read any more */
  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#have += chunk.length;
    while (this.#have >= this.#need) {
      const all = this.#chunks.length === 1 ? (this.#chunks[0] ?? chunk) : Buffer.concat(this.#chunks);
      this.#chunks = [all];
      if (all.readUInt32LE(0) !== MAGIC) throw new FormatError("a rank's message", "does not begin as one");
      const end = HEADER_BYTES + all.readUInt32LE(4);
      this.#need = end;
      if (all.length < end) return;
      const message = decode(all.subarray(HEADER_BYTES, end));
      this.#chunks = all.length === end ? [] : [all.subarray(end)];
      this.#have = all.length - end;
      this.#need = HEADER_BYTES;
      this.#emit(message);
    }
  }
}

function decode(bytes: Buffer): unknown {
  try {
    const deserializer = new Deserializer(bytes);
    deserializer.readHeader();
    return deserializer.readValue();
  } catch (cause) {
    throw new FormatError("a rank's message", "cannot be read", { cause });
  }
}
