/**
 * Strict JSON for foreign files: valid UTF-8, no duplicate keys (JSON.parse keeps the last of them silently, so two
 * readers of one file could see two models), a bound on the size, and every failure a FormatError that names the file.
 */
import { FormatError, show } from "../../core/index.ts";
import type { ByteSource } from "./byte-source.ts";
import { decodeUtf8, readTextFile } from "./text-file.ts";

/** Largest config, index or tokenizer file that is read. The largest tokenizer.json known has about 35 MB. */
export const MAX_JSON_BYTES = 128 * 1024 * 1024;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/**
 * Deepest nesting of lists and objects. No file that is read here has more than a dozen levels; what reads, shows or
 * checks a value after this may recurse.
 */
const MAX_DEPTH = 64;

const TOO_DEEP = `is nested deeper than ${MAX_DEPTH} levels of lists and objects`;

/** Why `text`, which is valid JSON, is refused here, if it is. Iterative, so that deep nesting cannot exhaust the stack. */
function flawOf(text: string): string | undefined {
  const stack: (Set<string> | undefined)[] = [];
  let keys: Set<string> | undefined;
  let expectKey = false;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case 0x7b: // {
        stack.push(keys);
        keys = new Set();
        expectKey = true;
        if (stack.length > MAX_DEPTH) return TOO_DEEP;
        break;
      case 0x5b: // [
        stack.push(keys);
        keys = undefined;
        expectKey = false;
        if (stack.length > MAX_DEPTH) return TOO_DEEP;
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
          if (keys.has(key)) return `has the key ${show(key)} twice in one object`;
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
 * Reads a JSON text in which no object has a key twice, and which is not nested deeper than 64 levels.
 * @param where the file's path, for the error; `document` names the whole text as the field of these errors
 * @throws FormatError when the text is not JSON, has a duplicate key or is nested too deep
 * @example
 * parseStrictJson('{"a": [1, 2]}', "a.json") // { a: [1, 2] }
 */
export function parseStrictJson(text: string, where: string, document?: string): unknown {
  const field = document === undefined ? {} : { field: document };
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : show(cause);
    throw new FormatError(where, `is not valid JSON (${why})`, { ...field, cause });
  }
  const flaw = flawOf(text);
  if (flaw !== undefined) throw new FormatError(where, flaw, field);
  return value;
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

/**
 * Reads a JSON file.
 * @throws FormatError when it cannot be read, is not a regular file, is too large, or is not strict JSON
 */
export function readJsonFile(path: string, maxBytes: number = MAX_JSON_BYTES): unknown {
  return parseStrictJson(readTextFile(path, maxBytes), path);
}

/** The result of a zod schema, declared here so that ranks, which read no such files, need not load zod. */
interface Schema<T> {
  safeParse(value: unknown):
    | { readonly success: true; readonly data: T }
    | {
        readonly success: false;
        readonly error: Error & {
          readonly issues: readonly { readonly path: readonly PropertyKey[]; readonly message: string }[];
        };
      };
}

/**
 * Checks a value of a file against its schema.
 * @throws FormatError naming the first field that is wrong
 */
export function checkSchema<T>(schema: Schema<T>, value: unknown, where: string, what: string): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new FormatError(where, issue?.message ?? `is not a valid ${what}`, {
    ...(issue === undefined || issue.path.length === 0 ? {} : { field: issue.path.map(String).join(".") }),
    cause: parsed.error,
  });
}
