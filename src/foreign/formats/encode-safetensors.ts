/** Writes safetensors: for checkpoints of small models and for tests. */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { SAFETENSORS_DTYPE_BITS, type SafetensorsDType } from "./safetensors.ts";

/** A tensor to write: little-endian bytes of its elements, row-major. */
export interface EncodeTensor {
  readonly dtype: SafetensorsDType;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/**
 * Lays tensors out as one safetensors file: larger elements first and the header padded to 8 bytes, so that all data is
 * aligned, as the reference implementation does.
 * @throws InvalidArgumentError when a tensor's bytes are not shape times dtype
 * @example
 * import { encodeSafetensors } from "chorale/formats";
 * const weights = Float32Array.of(1, 2, 3);
 * const file = encodeSafetensors({ w: { dtype: "F32", shape: [3], bytes: new Uint8Array(weights.buffer) } });
 * console.log(file.length % 8); // 4: the header is padded to 8 bytes, the data has 12
 */
export function encodeSafetensors(
  tensors: Readonly<Record<string, EncodeTensor>>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  const header: Record<string, unknown> = Object.create(null);
  if (Object.keys(metadata).length > 0) header["__metadata__"] = metadata;
  const entries = Object.entries(tensors).sort(
    ([, a], [, b]) => SAFETENSORS_DTYPE_BITS[b.dtype] - SAFETENSORS_DTYPE_BITS[a.dtype],
  );
  let end = 0;
  for (const [name, { dtype, shape, bytes }] of entries) {
    const needed = (shape.reduce((a, b) => a * b, 1) * SAFETENSORS_DTYPE_BITS[dtype]) / 8;
    if (bytes.length !== needed) {
      throw new InvalidArgumentError(
        name,
        described(`${bytes.length} bytes`),
        `${needed} bytes, for [${shape}] of ${dtype}`,
      );
    }
    header[name] = { dtype, shape, data_offsets: [end, end + needed] };
    end += needed;
  }
  let text = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(0x20);
  padded.set(text);
  text = padded;
  const file = new Uint8Array(8 + text.length + end);
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true);
  file.set(text, 8);
  let at = 8 + text.length;
  for (const [, { bytes }] of entries) {
    file.set(bytes, at);
    at += bytes.length;
  }
  return file;
}
