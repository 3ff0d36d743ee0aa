/**
 * Strict JSON for foreign files: valid UTF-8, no duplicate keys (JSON.parse keeps the last of them silently, so two
 * readers of one file could see two models), a bound on the size, and every failure a FormatError that names the file.
 */
import { FormatError, show } from "../../core/index.ts";
import { type ByteSource, fileSource } from "./byte-source.ts";

/** Largest config, index or tokenizer file that is read. The largest tokenizer.json known has about 35 MB. */
export const MAX_JSON_BYTES = 128 * 1024 * 1024;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Finds a key that stands twice in one object of `text`, which is known to be valid JSON. Iterative: depth is free. */
function duplicateKey(text: string): string | undefined {
  const stack: (Set<string> | undefined)[] = [];
  let keys: Set<string> | undefined;
  let expectKey = false;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x7b: // {
        stack.push(keys);
        keys = new Set();
        expectKey = true;
        break;
      case 0x5b: // [
        stack.push(keys);
        keys = undefined;
        expectKey = false;
        break;
      case 0x7d: // }
      case 0x5d: // ]
        keys = stack.pop();
        expectKey = false;
        break;
      case 0x2c: // ,
        expectKey = keys !== undefined;
        break;
      case QUOTE: {
        const start = at++;
        let escaped = false;
        for (let code = text.charCodeAt(at); code !== QUOTE; code = text.charCodeAt(++at)) {
          if (code === BACKSLASH) {
            escaped = true;
            at++;
          }
        }
        if (expectKey && keys !== undefined) {
          const key = escaped ? (JSON.parse(text.slice(start, at + 1)) as string) : text.slice(start + 1, at);
          if (keys.has(key)) return key;
          keys.add(key);
          expectKey = false;
        }
        break;
      }
    }
  }
  return undefined;
}

/**
 * Reads a JSON text in which no object has a key twice.
 * @param where the file's path, for the error
 * @throws FormatError when the text is not JSON or has a duplicate key
 * @example
 * parseStrictJson('{"a": [1, 2]}', "a.json") // { a: [1, 2] }
 */
export function parseStrictJson(text: string, where: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new FormatError(where, `is not valid JSON (${cause instanceof Error ? cause.message : show(cause)})`, {
      cause,
    });
  }
  const key = duplicateKey(text);
  if (key !== undefined) throw new FormatError(where, `has the key ${show(key)} twice in one object`);
  return value;
}

/**
 * Decodes UTF-8 without replacing what is broken.
 * @throws FormatError when the bytes are not UTF-8
 */
export function decodeUtf8(bytes: Uint8Array, where: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch (cause) {
    throw new FormatError(where, "is not valid UTF-8", { cause });
  }
}

/**
 * Reads a whole JSON document from a source.
 * @throws FormatError when it is larger than `maxBytes`, or not strict JSON
 */
export function readJson(source: ByteSource, maxBytes: number = MAX_JSON_BYTES): unknown {
  if (source.sizeBytes > maxBytes) {
    throw new FormatError(source.where, `has ${source.sizeBytes} bytes; a JSON file here has at most ${maxBytes}`);
  }
  const bytes = new Uint8Array(source.sizeBytes);
  source.read(bytes, 0);
  return parseStrictJson(decodeUtf8(bytes, source.where), source.where);
}

/** Reads a JSON file. @throws FormatError when it cannot be read, is too large, or is not strict JSON */
export function readJsonFile(path: string, maxBytes: number = MAX_JSON_BYTES): unknown {
  const source = fileSource(path);
  try {
    return readJson(source, maxBytes);
  } finally {
    source.close();
  }
}
