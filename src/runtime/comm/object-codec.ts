/**
 * The bytes of an object collective: V8's structured-clone format, so that what arrives is what was given. Values that
 * it would change without a word (instances of classes, symbol keys, properties of a Map) are refused, as are those that
 * it cannot hold. The values that a launcher and its ranks give each other obey the same rule.
 */
import { FormatError, InvalidArgumentError, show } from "../../core/index.ts";
import { described } from "../../core/internal.ts";

const ACCEPTED =
  "plain objects, arrays, Map, Set, Date, RegExp, Error, ArrayBuffer, typed arrays, strings, numbers, bigints, booleans, null and undefined";

/** What structured clone keeps as it is, by the name of its class. */
const CARRIED = new Set([
  ...["Array", "Map", "Set", "Date", "RegExp", "ArrayBuffer", "DataView", "Buffer", "Number", "String", "Boolean"],
  ...["BigInt", "Error", "EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"],
  ...["Int8Array", "Uint8Array", "Uint8ClampedArray", "Int16Array", "Uint16Array", "Int32Array", "Uint32Array"],
  ...["Float16Array", "Float32Array", "Float64Array", "BigInt64Array", "BigUint64Array"],
]);
/** What threads of one process share or copy beside that. */
const CARRIED_BY_THREADS = new Set(["SharedArrayBuffer", "Module", "Memory"]);
/** Names of errors that arrive as they are. */
const ERROR_NAMES = new Set([...CARRIED].filter((name) => name.endsWith("Error")));

/** Says what of an object would be lost, if anything. */
function lossOf(value: object, isForThreads: boolean): string | undefined {
  const keys = Object.getOwnPropertySymbols(value).filter((key) =>
    Object.prototype.propertyIsEnumerable.call(value, key),
  );
  if (keys.length > 0) return `an object with the key ${String(keys[0])}`;
  const prototype: unknown = Object.getPrototypeOf(value);
  // The root of a prototype chain is Object.prototype, of whatever realm.
  if (prototype === null || Object.getPrototypeOf(prototype) === null) return undefined;
  const name = (prototype as { constructor?: { name?: unknown } }).constructor?.name;
  const isNamed = typeof name === "string" && name !== "";
  const isCarried = isNamed && (CARRIED.has(name) || (isForThreads && CARRIED_BY_THREADS.has(name)));
  // A program may have a class of its own that is called Map.
  if (!isCarried || !isNative(prototype as object)) return `an instance of ${isNamed ? name : "a class"}`;
  const extra = propertyOf(value);
  return extra === undefined ? undefined : `${name} with the property ${extra}`;
}

/** A property of its own that an object of a built-in class would lose. */
function propertyOf(value: object): string | undefined {
  // What has elements keeps them, and looking through their keys would take long.
  if (Array.isArray(value) || ArrayBuffer.isView(value) || value instanceof String) return undefined;
  const isError = value instanceof Error;
  return Object.keys(value).find((key) => {
    if (!isError) return true;
    return key === "name" ? !ERROR_NAMES.has(value.name) : !["message", "stack", "cause"].includes(key);
  });
}

/** Whether a prototype is one that the engine made. */
function isNative(prototype: object): boolean {
  const { constructor: made } = prototype as { constructor?: unknown };
  if (typeof made !== "function") return false;
  return made === Buffer || /\[native code\]\s*\}$/.test(Function.prototype.toString.call(made));
}

/** The parts of an object that travel with it. */
function partsOf(value: object): readonly unknown[] {
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return [];
  if (value instanceof Map) return [...value.keys(), ...value.values()];
  if (value instanceof Set) return [...value];
  if (value instanceof Error) return [value.cause];
  return Object.values(value);
}

/**
 * Checks that a value arrives as it is given.
 * @param argument how errors call it
 * @param isForThreads whether threads of one process give it to each other, which may share memory
 * @throws InvalidArgumentError for what would arrive as something else
 */
export function checkCarried(root: unknown, argument: string, isForThreads = false): void {
  const seen = new Set<object>();
  const open: unknown[] = [root];
  while (open.length > 0) {
    const value = open.pop();
    if (typeof value === "function" || typeof value === "symbol") {
      throw new InvalidArgumentError(argument, described(`one that holds a ${typeof value}`), ACCEPTED);
    }
    if (typeof value !== "object" || value === null || seen.has(value)) continue;
    seen.add(value);
    const loss = lossOf(value, isForThreads);
    if (loss !== undefined) throw new InvalidArgumentError(argument, described(loss), ACCEPTED);
    for (const part of partsOf(value)) open.push(part);
  }
}

/**
 * Writes a value of an object collective.
 * @throws InvalidArgumentError for what cannot be carried, and beyond `maxBytes`
 */
export function encodeObject(value: unknown, maxBytes: number): Uint8Array {
  checkCarried(value, "value");
  let bytes: Uint8Array;
  try {
    bytes = process.getBuiltinModule("node:v8").serialize(value);
  } catch (error) {
    throw new InvalidArgumentError(
      "value",
      described(`one that cannot be copied (${(error as Error).message})`),
      ACCEPTED,
    );
  }
  if (bytes.length > maxBytes) {
    throw new InvalidArgumentError(
      "value",
      described(`${bytes.length} bytes`),
      `at most ${maxBytes}: send bulk data as tensors`,
    );
  }
  return bytes;
}

function makeReader() {
  /** Gives typed arrays memory of their own: Node's has them lie in the message, all in one buffer. */
  return class ObjectReader extends process.getBuiltinModule("node:v8").DefaultDeserializer {
    _readHostObject(): unknown {
      const view = (super["_readHostObject" as never] as () => ArrayBufferView).call(this);
      if (Buffer.isBuffer(view)) return Buffer.from(view);
      if (view instanceof DataView) {
        return new DataView(view.buffer.slice(view.byteOffset, view.byteOffset + view.byteLength));
      }
      return (view as Uint8Array).slice();
    }
  };
}
/** Made for the first object, with the module that it needs: most ranks send none, and start sooner without. */
let ObjectReader: ReturnType<typeof makeReader> | undefined;

/** Reads what `encodeObject` wrote; `undefined` for no bytes. @throws FormatError for what is not that */
export function decodeObject(bytes: Uint8Array | undefined): unknown {
  if (bytes === undefined) return undefined;
  try {
    ObjectReader ??= makeReader();
    const reader = new ObjectReader(bytes);
    reader.readHeader();
    return reader.readValue();
  } catch (error) {
    throw new FormatError(
      "an object of a peer",
      `${bytes.length} bytes that are no value: ${show((error as Error).message)}`,
    );
  }
}
