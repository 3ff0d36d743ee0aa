/** A value of a MSCCL++ file, with its path. Nothing in such a file is trusted. */
import { FormatError, wordTable } from "../../core/index.ts";
import type { BufferKind } from "../plan/index.ts";

const BUFFER: Readonly<Record<string, BufferKind>> = wordTable({ i: "input", o: "output", s: "scratch" });

/** A JSON value and its path: every getter checks and names what is wrong. */
export class Node {
  readonly value: unknown;
  readonly path: string;
  private readonly where: string;
  constructor(value: unknown, path: string, where: string) {
    this.value = value;
    this.path = path;
    this.where = where;
  }
  fail(problem: string): never {
    throw new FormatError(this.where, problem, this.path === "" ? {} : { field: this.path });
  }
  get(key: string): Node {
    const child = this.maybe(key);
    return child ?? new Node(undefined, this.#under(key), this.where).fail("is missing");
  }
  maybe(key: string): Node | undefined {
    if (typeof this.value !== "object" || this.value === null || Array.isArray(this.value))
      this.fail("is not an object");
    const value = Object.hasOwn(this.value as object, key) ? (this.value as Record<string, unknown>)[key] : undefined;
    return value === undefined ? undefined : new Node(value, this.#under(key), this.where);
  }
  #under(key: string): string {
    return this.path === "" ? key : `${this.path}.${key}`;
  }
  list(): Node[] {
    if (!Array.isArray(this.value)) this.fail("is not a list");
    return (this.value as unknown[]).map((item, i) => new Node(item, `${this.path}[${i}]`, this.where));
  }
  count(): number {
    if (typeof this.value !== "number" || !Number.isInteger(this.value) || this.value < 0)
      this.fail("is not a whole number, 0 or more");
    return this.value as number;
  }
  counts(): number[] {
    return this.list().map((node) => node.count());
  }
  text(): string {
    if (typeof this.value !== "string") this.fail("is not a string");
    return this.value as string;
  }
  bool(): boolean {
    if (typeof this.value !== "boolean") this.fail("is neither true nor false");
    return this.value as boolean;
  }
  size(): bigint {
    if (typeof this.value === "number" && Number.isSafeInteger(this.value) && this.value >= 0)
      return BigInt(this.value);
    if (typeof this.value === "string" && /^\d{1,20}$/.test(this.value)) return BigInt(this.value);
    return this.fail("is not a number of bytes");
  }
  one<T extends string>(accepted: readonly T[]): T {
    const text = this.text();
    return (
      accepted.find((item) => item === text) ?? this.fail(`is ${JSON.stringify(text)}; expected ${accepted.join(", ")}`)
    );
  }
  buffer(): BufferKind {
    return BUFFER[this.text()] ?? this.fail("is not a buffer: i, o or s");
  }
}
