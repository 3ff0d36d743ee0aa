/** Small out-parameters and C strings: buffers that a foreign function writes and JavaScript reads. */

/** A buffer for one C integer that a function writes; `read` takes it out. */
export interface OutValue<T> {
  readonly buffer: Buffer;
  read(): T;
}

/** Room for a 64-bit unsigned integer, a handle or a pointer. */
export function outUint64(): OutValue<bigint> {
  const buffer = Buffer.alloc(8);
  return { buffer, read: () => buffer.readBigUInt64LE(0) };
}

/** The bytes up to the first NUL as text. */
export function cString(buffer: Buffer, start = 0, end = buffer.length): string {
  const nul = buffer.indexOf(0, start);
  return buffer.toString("utf8", start, nul < 0 || nul > end ? end : nul);
}
