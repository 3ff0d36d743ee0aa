/** Small readers for what tools and sysfs print. Each returns undefined for an invalid value; none throws. */

/** Longest name or message kept in an inventory. */
const MAX_TEXT = 256;

/** Removes terminal escapes and control characters (line ends and tabs stay). */
export function plain(text: string): string {
  return text
    .replace(/\u001b\][^\u0007\u001b]*(?:\u0007|\u001b\\)?/g, "")
    .replace(/[\u001b\u009b][[\]()#;?]*(?:\d{1,4}(?:;\d{0,4})*)?[0-9A-PR-TZcf-nq-uy=><~@`a-z]?/gi, "")
    .replace(/\r\n?/g, "\n")
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "");
}

/** One line, trimmed, of bounded length. */
export function line(text: string): string {
  const flat = plain(text).replace(/\s+/g, " ").trim();
  return flat.length > MAX_TEXT ? `${flat.slice(0, MAX_TEXT - 3)}...` : flat;
}

/** What vendors print instead of a value. */
const ABSENT =
  /^$|^\[?(n\/?a|not supported|not available|unknown error|unknown|insufficient permissions|gpu is lost|err!?|none|null|-+)\]?!?$/i;

/** A field's text, or undefined for `[N/A]`, `[Not Supported]`, `ERR!` and the like. */
export function field(text: string | undefined): string | undefined {
  if (text === undefined) return undefined;
  const value = line(text);
  return ABSENT.test(value) ? undefined : value;
}

/** A finite number at the start of a field, a unit after it ignored: `31`, `70.12 W`, `600.00`; `1e400` is not one. */
export function number(text: string | undefined): number | undefined {
  const match = /^([+-]?\d{1,18}(?:\.\d{1,9})?)(?!e[+-]?\d)(?:\s*[A-Za-z%°/].*)?$/i.exec(field(text) ?? "");
  return match === null ? undefined : Number(match[1]);
}

/** A whole number, 0 or more. */
export function count(text: string | undefined): number | undefined {
  const value = number(text);
  return value !== undefined && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** No device has more than this much memory (64 TiB): larger figures are misreadings. */
const MAX_MEMORY_BYTES = 64 * 1024 ** 4;

/** A memory size in bytes, if it can be one. */
export function memory(bytes: number | undefined): number | undefined {
  if (bytes === undefined || !Number.isFinite(bytes) || bytes < 0 || bytes > MAX_MEMORY_BYTES) return undefined;
  return Math.round(bytes);
}

/** MiB, as NVIDIA's and Habana's tools print memory, in bytes. */
export function mib(text: string | undefined): number | undefined {
  const value = number(text);
  return value === undefined ? undefined : memory(value * 1024 ** 2);
}

/** `0x1002` or `1002`, as a number. */
export function hex(text: string | undefined): number | undefined {
  const match = /^(?:0x)?([0-9a-f]{1,12})$/i.exec(text?.trim() ?? "");
  return match === null ? undefined : Number.parseInt(match[1] ?? "", 16);
}

/** A PCI address in lower case with a domain of four digits: `00000000:1B:00.0` becomes `0000:1b:00.0`. */
export function pciAddress(text: string | undefined): string | undefined {
  const match = /^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])$/i.exec(text?.trim() ?? "");
  if (match === null) return undefined;
  const domain = Number.parseInt(match[1] ?? "0", 16)
    .toString(16)
    .padStart(4, "0");
  return `${domain}:${match[2]}:${match[3]}.${match[4]}`.toLowerCase();
}

/** Most fields of one line of CSV. */
const MAX_FIELDS = 128;

/** Splits a line of CSV; fields may be quoted with doubled quotes inside. */
export function csvLine(row: string): string[] {
  const text = row.slice(0, MAX_LINE);
  const fields: string[] = [];
  let at = 0;
  while (at <= text.length && fields.length < MAX_FIELDS) {
    const quoted = /^\s*"((?:[^"]|"")*)"\s*(?:,|$)/.exec(text.slice(at));
    if (quoted !== null) {
      fields.push((quoted[1] ?? "").replaceAll('""', '"'));
      at += quoted[0].length;
      if (!quoted[0].endsWith(",")) break;
    } else {
      const end = text.indexOf(",", at);
      fields.push(text.slice(at, end < 0 ? undefined : end).trim());
      if (end < 0) break;
      at = end + 1;
    }
    if (at === text.length) {
      fields.push("");
      break;
    }
  }
  return fields;
}

/** A row that does not have as many cells as the table has columns cannot be read: a cell too many shifts all others. */
export function unreadableRow(source: string, row: string): { source: string; message: string } {
  return { source, message: `a row cannot be read: ${line(row).slice(0, 80)}` };
}

/** Reads `0-3,8,10-11` as numbers, bounded. */
export function cpuList(text: string | undefined): number[] {
  const cpus: number[] = [];
  for (const range of (text ?? "").trim().split(",")) {
    const match = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(range.trim());
    if (match === null) continue;
    const last = Math.min(Number(match[2] ?? match[1]), 65_535);
    for (let cpu = Number(match[1]); cpu <= last && cpus.length < 65_536; cpu++) cpus.push(cpu);
  }
  return cpus;
}

/** Parses JSON; undefined when it is not valid. */
export function json(text: string | undefined): unknown {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}

/** An object of JSON, or undefined. */
export function record(value: unknown): Readonly<Record<string, unknown>> | undefined {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : undefined;
}

/** A scalar of JSON as a field's text. */
export function scalar(value: unknown): string | undefined {
  return typeof value === "string" || typeof value === "number" || typeof value === "boolean"
    ? String(value)
    : undefined;
}

/** Longest line that is looked at; the widest that tools print, a topology matrix of 128 GPUs, has about 1500 characters. */
const MAX_LINE = 8192;
/** Most lines that are looked at; full `vulkaninfo` of four GPUs has about 9000. */
const MAX_LINES = 65_536;

/** The lines of an output, each and all bounded: what a hostile tool prints must cost no more than it is long. */
export function linesOf(text: string): string[] {
  const lines: string[] = [];
  for (let at = 0; at <= text.length && lines.length < MAX_LINES; ) {
    const end = text.indexOf("\n", at);
    const stop = end < 0 ? text.length : end;
    lines.push(text.slice(at, Math.min(stop, at + MAX_LINE)));
    at = stop + 1;
  }
  return lines;
}

/** The value of a line `name: value` (or with another separator), case ignored; the first one counts. */
export function namedValue(lines: readonly string[], name: string, separator = ":"): string | undefined {
  const wanted = name.toLowerCase();
  for (const row of lines) {
    const at = row.indexOf(separator);
    if (at >= 0 && row.slice(0, at).trim().toLowerCase() === wanted) return field(row.slice(at + separator.length));
  }
  return undefined;
}
