/**
 * Reads a plan from the bytes of a file, whichever kind it is: chorale's own JSON, MSCCL++'s JSON, MSCCL's XML. A large
 * JSON file (85 MB for 64 ranks of packets) is read rank by rank: parsed as a whole it would take ten times its size.
 */
import { FormatError } from "../../core/index.ts";
import type { ExecutionPlan } from "../plan/index.ts";
import { planFromJson } from "./chorale-json.ts";
import { parseFile } from "./exact-json.ts";
import { readMscclXml } from "./read-msccl-xml.ts";
import { readMscclpp } from "./read-mscclpp-json.ts";

/** Smaller files are parsed at once. */
const PIECEWISE_BYTES = 2 ** 20;
/** The longest string that V8 makes is a little less. */
const MAX_PIECE_BYTES = 2 ** 29 - 64;

/**
 * Reads a plan of any format.
 * @param bytes the file, UTF-8
 * @param where its name, for messages
 * @throws FormatError for a file that is not a plan, naming the wrong field
 */
export function readPlan(bytes: Uint8Array, where = "plan"): ExecutionPlan {
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (where.endsWith(".xml") || /^(\uFEFF)?\s*</.test(buffer.toString("utf8", 0, 256)))
    return readMscclXml(buffer.toString("utf8"), where);
  const pieces = bytes.length < PIECEWISE_BYTES ? undefined : piecesOf(buffer, where);
  if (pieces === undefined) {
    if (bytes.length > MAX_PIECE_BYTES)
      throw new FormatError(where, "is too large, and no list of ranks is found in it");
    return ofJson(parseFile(buffer.toString("utf8").replace(/^\uFEFF/, ""), where), where);
  }
  return ofJson(pieces.rest, where, pieces);
}

function ofJson(json: unknown, where: string, pieces?: Pieces): ExecutionPlan {
  const ours = typeof json === "object" && json !== null && "schemaVersion" in json;
  if (ours) return planFromJson(json, where, pieces?.key === "ranks" ? pieces.list : undefined);
  return readMscclpp(json, where, pieces?.key === "gpus" ? pieces.list : undefined);
}

interface Pieces {
  readonly key: "ranks" | "gpus";
  /** The document with an empty list under `key`. */
  readonly rest: unknown;
  /** The items of the list, parsed one by one. */
  readonly list: Iterable<unknown>;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const [OPEN_LIST, CLOSE_LIST, OPEN_OBJECT, CLOSE_OBJECT, COMMA, COLON] = [0x5b, 0x5d, 0x7b, 0x7d, 0x2c, 0x3a];

/** Index behind the string that begins at `at`. */
function stringEnd(bytes: Buffer, at: number): number {
  for (let i = at + 1; ; i++) {
    i = bytes.indexOf(QUOTE, i);
    if (i < 0) return bytes.length;
    let backslashes = 0;
    while (bytes[i - 1 - backslashes] === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return i + 1;
  }
}

/** Finds the list of ranks at the top of the document. @returns undefined where it is not as expected */
function piecesOf(bytes: Buffer, where: string): Pieces | undefined {
  let depth = 0;
  let key = "";
  let found: { key: "ranks" | "gpus"; begin: number; end: number; cuts: number[] } | undefined;
  let inside = false;
  for (let i = 0; i < bytes.length; i++) {
    const c = bytes[i];
    if (c === QUOTE) {
      const end = stringEnd(bytes, i);
      if (depth === 1) {
        let next = end;
        while (bytes[next] === 0x20 || bytes[next] === 0x0a || bytes[next] === 0x0d || bytes[next] === 0x09) next++;
        if (bytes[next] === COLON) key = bytes.toString("latin1", i + 1, Math.min(end - 1, i + 64));
      }
      i = end - 1;
    } else if (c === OPEN_OBJECT || c === OPEN_LIST) {
      if (depth === 1 && c === OPEN_LIST && (key === "ranks" || key === "gpus")) {
        if (found !== undefined) return undefined;
        found = { key, begin: i, end: -1, cuts: [i] };
        inside = true;
      }
      depth++;
    } else if (c === CLOSE_OBJECT || c === CLOSE_LIST) {
      depth--;
      if (inside && depth === 1 && found !== undefined) {
        found.end = i;
        found.cuts.push(i);
        inside = false;
      }
      if (depth < 0) return undefined;
    } else if (c === COMMA && inside && depth === 2) found?.cuts.push(i);
  }
  if (found === undefined || found.end < 0 || depth !== 0) return undefined;
  const { begin, end, cuts } = found;
  if (begin + bytes.length - end > MAX_PIECE_BYTES) return undefined;
  const rest = parseFile(`${bytes.toString("utf8", 0, begin + 1)}${bytes.toString("utf8", end)}`, where);
  const piece = (i: number) => bytes.toString("utf8", cuts[i]! + 1, cuts[i + 1]!);
  const numPieces = cuts.length === 2 && piece(0).trim() === "" ? 0 : cuts.length - 1;
  return {
    key: found.key,
    rest,
    list: {
      *[Symbol.iterator]() {
        for (let i = 0; i < numPieces; i++) yield parseFile(piece(i), `${where}, ${found.key}[${i}]`);
      },
    },
  };
}
