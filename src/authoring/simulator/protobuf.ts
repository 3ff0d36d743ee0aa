/** Just enough of protocol buffers' wire format to write messages: varints, length-delimited fields, doubles. */
export class ProtoWriter {
  readonly #bytes: number[] = [];

  #varint(value: bigint): void {
    let rest = BigInt.asUintN(64, value);
    for (;;) {
      const low = Number(rest & 0x7fn);
      rest >>= 7n;
      if (rest === 0n) {
        this.#bytes.push(low);
        return;
      }
      this.#bytes.push(low | 0x80);
    }
  }
  #tag(field: number, wire: number): void {
    this.#varint(BigInt((field << 3) | wire));
  }
  varint(field: number, value: number | bigint): this {
    this.#tag(field, 0);
    this.#varint(BigInt(value));
    return this;
  }
  bool(field: number, value: boolean): this {
    return this.varint(field, value ? 1 : 0);
  }
  bytes(field: number, value: Uint8Array): this {
    this.#tag(field, 2);
    this.#varint(BigInt(value.length));
    for (const byte of value) this.#bytes.push(byte);
    return this;
  }
  text(field: number, value: string): this {
    return this.bytes(field, new TextEncoder().encode(value));
  }
  message(field: number, inner: ProtoWriter): this {
    return this.bytes(field, inner.finish());
  }
  /** A packed list of varints. */
  packed(field: number, values: readonly number[]): this {
    if (values.length === 0) return this;
    const inner = new ProtoWriter();
    for (const value of values) inner.#varint(BigInt(value));
    return this.bytes(field, inner.finish());
  }
  finish(): Uint8Array {
    return Uint8Array.from(this.#bytes);
  }
  /** The message with its length before it, as files of several messages have it. */
  delimited(): Uint8Array {
    const length = new ProtoWriter();
    length.#varint(BigInt(this.#bytes.length));
    return Uint8Array.from([...length.#bytes, ...this.#bytes]);
  }
}
