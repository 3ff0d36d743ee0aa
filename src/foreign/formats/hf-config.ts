/**
 * A reader of Hugging Face `config.json` for every architecture: it hands out fields with their type and range checked,
 * and every refusal names the field. What the fields mean for a model is the planner's business (`planner/model/`).
 * Refuses files over 16 MiB: a config is a few kilobytes, and a larger file is not one.
 */
import { FormatError, show } from "../../core/index.ts";
import { parseStrictJson } from "./json.ts";
import { readTextFile } from "./text-file.ts";

/** Largest config that is read, in bytes. */
export const MAX_CONFIG_BYTES = 16 * 1024 * 1024;

export interface IntOptions {
  readonly min?: number;
  readonly max?: number;
  readonly default?: number;
}

type JsonObject = { readonly [key: string]: unknown };

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Typed access to the fields of one JSON object. A field that is absent or null counts as not given. */
export class ConfigReader {
  readonly where: string;
  readonly #values: JsonObject;
  readonly #prefix: string;

  constructor(values: unknown, where: string, prefix = "") {
    if (!isObject(values)) {
      throw new FormatError(where, `is ${show(values)}; expected a JSON object`, { field: prefix || "(document)" });
    }
    this.#values = values;
    this.where = where;
    this.#prefix = prefix;
  }

  /** Builds the error for a field of this object. */
  error(field: string, problem: string): FormatError {
    return new FormatError(this.where, problem, { field: this.#path(field) });
  }

  has(name: string): boolean {
    return this.raw(name) !== undefined;
  }

  /** Names of all fields. */
  names(): readonly string[] {
    return Object.keys(this.#values);
  }

  /** Whether the field is present and `null`: a choice, where the class has another default. */
  isNull(name: string): boolean {
    return Object.hasOwn(this.#values, name) && this.#values[name] === null;
  }

  /** The value as it stands, own properties only; null counts as absent. */
  raw(name: string): unknown {
    return Object.hasOwn(this.#values, name) ? (this.#values[name] ?? undefined) : undefined;
  }

  /**
   * An integer, from the first of `names` that is given.
   * @throws FormatError when it is missing without a default, not an integer, or out of range
   */
  int(names: string | readonly string[], options: IntOptions = {}): number {
    const value = this.optionalInt(names, options);
    if (value !== undefined) return value;
    if (options.default !== undefined) return options.default;
    const list = typeof names === "string" ? [names] : names;
    throw this.error(
      list[0] ?? "",
      `is missing${list.length > 1 ? ` (also looked for ${list.slice(1).join(", ")})` : ""}`,
    );
  }

  optionalInt(names: string | readonly string[], options: IntOptions = {}): number | undefined {
    const { min = 1, max = 2 ** 31 - 1 } = options;
    for (const name of typeof names === "string" ? [names] : names) {
      const value = this.raw(name);
      if (value === undefined) continue;
      if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max) {
        throw this.error(name, `is ${show(value)}; expected an integer from ${min} to ${max}`);
      }
      return value;
    }
    return undefined;
  }

  bool(name: string, fallback: boolean): boolean {
    const value = this.raw(name);
    if (value === undefined) return fallback;
    if (typeof value !== "boolean") throw this.error(name, `is ${show(value)}; expected true or false`);
    return value;
  }

  optionalString(name: string): string | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (typeof value !== "string") throw this.error(name, `is ${show(value)}; expected a string`);
    return value;
  }

  optionalNumber(name: string, min: number, max: number): number | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (typeof value !== "number" || !Number.isFinite(value) || value < min || value > max) {
      throw this.error(name, `is ${show(value)}; expected a number from ${min} to ${max}`);
    }
    return value;
  }

  optionalObject(name: string): ConfigReader | undefined {
    const value = this.raw(name);
    return value === undefined ? undefined : new ConfigReader(value, this.where, this.#path(name));
  }

  /** An array of strings. */
  optionalStrings(name: string): readonly string[] | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value) || !value.every((item): item is string => typeof item === "string")) {
      throw this.error(name, `is ${show(value)}; expected an array of strings`);
    }
    return value;
  }

  /** An array of integers of at least 0. */
  optionalInts(name: string): readonly number[] | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value) || !value.every((item): item is number => Number.isInteger(item) && item >= 0)) {
      throw this.error(name, `is ${show(value)}; expected an array of integers, 0 or more`);
    }
    return value;
  }

  #path(name: string): string {
    return this.#prefix === "" ? name : `${this.#prefix}.${name}`;
  }
}

/**
 * Python's json module writes `Infinity` and `NaN`, which JSON does not have, for floats that are none (Nemotron's
 * `time_step_limit`); no size is one of them, so that they count as absent.
 */
const withoutInfinities = (text: string): string =>
  text.replace(/"(?:[^"\\]|\\.)*"?|-?\bInfinity\b|\bNaN\b/g, (word) => (word.startsWith('"') ? word : "null"));

/**
 * Parses the text of a `config.json`.
 * @throws FormatError when it is not a JSON object
 * @example
 * parseConfigText('{"model_type":"llama","hidden_size":4096}', "config.json").int("hidden_size") // 4096
 */
export function parseConfigText(text: string, where: string): ConfigReader {
  return new ConfigReader(parseStrictJson(withoutInfinities(text), where, "(document)"), where);
}

/**
 * Reads a `config.json`.
 * @throws FormatError when the file cannot be read, is not a regular file, is too large, or is not a JSON object
 */
export function readConfigFile(path: string): ConfigReader {
  return parseConfigText(readTextFile(path, MAX_CONFIG_BYTES), path);
}
