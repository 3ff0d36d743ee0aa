/** Changes to the bytes of a file, for campaigns: as bytes, and, where it is JSON or holds a JSON header, as values. */
import type { Random } from "../oracle/random.ts";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

const HOSTILE = "\u001b[2J\u001b]0;t\u0007\u202e\u009b1m\r";
const VALUES: readonly (() => Json)[] = [
  () => null,
  () => true,
  () => -1,
  () => 0,
  () => 0.5,
  () => 1e308,
  () => 2 ** 31,
  () => 2 ** 53,
  () => -(2 ** 53),
  () => 8.64e15 + 1,
  () => "",
  () => HOSTILE,
  () => `a\n${HOSTILE}`,
  () => "__proto__",
  () => "constructor",
  () => "x".repeat(5000),
  () => "\ud800",
  () => [],
  () => ({}),
  () => Array.from({ length: 2000 }, () => 1),
  () => Array.from({ length: 300 }, (_, i) => ({ id: i })),
];

/** A value within so many lists. */
function nested(depth: number): string {
  return `${"[".repeat(depth)}${"]".repeat(depth)}`;
}

/** Documents that are nested deeper are changed as bytes: what works on values here, and in Node, takes stack for each level. */
const MAX_DEPTH = 1000;

function isDeep(root: Json): boolean {
  let level: Json[] = [root];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > MAX_DEPTH) return true;
    level = level.flatMap((node) => (typeof node === "object" && node !== null ? Object.values(node) : []));
  }
  return false;
}

/** Replaces, removes, doubles or renames one node of a JSON value, anywhere in it. */
function mutateJson(root: Json, random: Random): Json {
  const places: { holder: Json[] | { [key: string]: Json }; key: string | number }[] = [];
  const walk = (node: Json) => {
    if (typeof node !== "object" || node === null) return;
    const keys = Array.isArray(node) ? node.keys() : Object.keys(node);
    for (const key of keys) {
      places.push({ holder: node, key });
      walk((node as { [key: string]: Json })[key] as Json);
    }
  };
  const box: Json[] = [root];
  walk(box);
  const { holder, key } = random.pick(places);
  const own = holder as { [key: string]: Json };
  const old = own[key] as Json;
  switch (random.below(6)) {
    case 0:
      if (Array.isArray(holder)) holder.splice(Number(key), 1);
      else delete own[key];
      break;
    case 1:
      if (Array.isArray(holder)) holder.splice(Number(key), 0, structuredClone(old));
      else
        Object.defineProperty(own, random.pick(["__proto__", "constructor", HOSTILE, "x"]), {
          value: old,
          enumerable: true,
        });
      break;
    case 2:
      if (typeof old === "number") own[key] = old + random.pick([-1, 1, 0.5, 2 ** 20, 2 ** 32]);
      else own[key] = random.pick(VALUES)();
      break;
    case 3: {
      const other = random.pick(places);
      own[key] = structuredClone((other.holder as { [key: string]: Json })[other.key] as Json);
      break;
    }
    default:
      own[key] = random.pick(VALUES)();
  }
  return box[0] as Json;
}

function mutateBytes(bytes: Uint8Array, random: Random): Uint8Array {
  const at = random.below(Math.max(1, bytes.length));
  const end = Math.min(bytes.length, at + 1 + random.below(64));
  const join = (...parts: Uint8Array[]) => new Uint8Array(Buffer.concat(parts));
  switch (random.below(7)) {
    case 0:
      return bytes.slice(0, at);
    case 1:
      return join(bytes.subarray(0, end), bytes.subarray(at));
    case 2:
      return join(bytes.subarray(0, at), bytes.subarray(end));
    case 3:
      return join(bytes.subarray(0, at), new TextEncoder().encode(HOSTILE), bytes.subarray(at));
    case 4:
      return join(
        bytes.subarray(0, at),
        new TextEncoder().encode(nested(random.pick([10, 100, 5000]))),
        bytes.subarray(end),
      );
    case 5:
      // Numbers of headers: the largest there are.
      return join(bytes.subarray(0, at), new Uint8Array(8).fill(random.pick([0, 0x7f, 0xff])), bytes.subarray(at + 8));
    default: {
      // Not slice(): that of a Buffer is the same memory, and later mutants would be made of this one.
      const copy = Uint8Array.from(bytes);
      for (let i = 0; i <= random.below(4); i++) copy[random.below(copy.length)] = random.below(256);
      return copy;
    }
  }
}

/** The JSON of a file, and how to put another in its place. */
function jsonOf(bytes: Uint8Array): { value: Json; put: (value: Json) => Uint8Array } | undefined {
  const parse = (part: Uint8Array): Json | undefined => {
    try {
      const value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(part)) as Json;
      return isDeep(value) ? undefined : value;
    } catch {
      return undefined;
    }
  };
  const encode = (value: Json) => new TextEncoder().encode(JSON.stringify(value));
  const whole = parse(bytes);
  if (whole !== undefined) return { value: whole, put: encode };
  // safetensors: the header's length, the header, the data.
  if (bytes.length < 8 || bytes[8] !== 0x7b) return undefined;
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = length <= bytes.length - 8 ? parse(bytes.subarray(8, 8 + length)) : undefined;
  if (header === undefined) return undefined;
  return {
    value: header,
    put: (value) => {
      const text = encode(value);
      const size = new Uint8Array(8);
      new DataView(size.buffer).setBigUint64(0, BigInt(text.length), true);
      return new Uint8Array(Buffer.concat([size, text, bytes.subarray(8 + length)]));
    },
  };
}

/** One to three changes to a file. */
export function mutateFile(content: Uint8Array, random: Random): Uint8Array {
  let bytes = content;
  for (let i = 0; i <= random.below(3); i++) {
    const json = random.chance(0.7) ? jsonOf(bytes) : undefined;
    bytes = json?.put(mutateJson(json.value, random)) ?? mutateBytes(bytes, random);
  }
  return bytes;
}
