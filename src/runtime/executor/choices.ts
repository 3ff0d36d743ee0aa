/**
 * Which algorithm serves a collective: data, looked up by collective, ranks, element type, size and topology. Tables come
 * in documents: this machine's own, which `chorale tune` writes, then the shipped ones; the first table that fits wins.
 * The launcher reads the machine's document and hands it to the ranks, so that all of them choose the same.
 *
 * It does not know what a rank is, nor how a kernel or a plan runs: a backend names its kernels, and runs what is chosen.
 */
import { COLLECTIVE_NAMES, type CollectiveName } from "../../collectives/index.ts";
import { DTYPE_NAMES, type DType, FormatError, formatSize, InvalidArgumentError } from "../../core/index.ts";
import { isAlgorithmFor, namesOfAlgorithms } from "./algorithm-names.ts";
import { hasBuiltPlans } from "./built-plans.ts";
import { isServed, parseServed, SERVED_COLLECTIVES, type Served } from "./served.ts";

export const CHOICES_SCHEMA_VERSION = 1;

/** Backends of devices, whose calls go into graphs, and what serves calls there that is no algorithm. */
const CAPTURING: ReadonlyMap<string, readonly string[]> = new Map([["cuda", ["nccl"]]]);

export interface ChoiceRow {
  /** The first size that it serves, up to the next row: bytes of the larger of a rank's two buffers. */
  readonly fromBytes: number;
  /** `NAME[*INSTANCES][/CHUNKS]`: a kernel of the backend, or an algorithm. */
  readonly use: string;
  /** What serves captured calls, where that is another algorithm. All ranks of a group capture a call, or none. */
  readonly captured?: string;
  /** What was measured at `fromBytes`; of captured calls, where they are served by `captured`. */
  readonly timeUs?: number;
}

export interface ChoiceTable {
  readonly backend: string;
  readonly collective: CollectiveName;
  /** Fewest and most ranks. */
  readonly ranks: readonly [number, number];
  /** Element types; all when absent. */
  readonly dtypes?: readonly DType[];
  /** Which topology it is for, as the backend names it; all when absent. */
  readonly topology?: string;
  /** Its plans come compiled with the package: where they are missing, as in a bundled program, the next table serves. */
  readonly built?: true;
  /** The hash of a program's plan: the table is for `comm.run` of that program alone, and its rows name variants of it. */
  readonly program?: string;
  /** By size, the first from 0. */
  readonly rows: readonly ChoiceRow[];
}

export interface ChoiceDocument {
  readonly schemaVersion: typeof CHOICES_SCHEMA_VERSION;
  /** Where it comes from, for people: `shipped`, or the machine's key. */
  readonly source: string;
  readonly date: string;
  readonly tables: readonly ChoiceTable[];
  /** Plans that rows name beside the library's algorithms. Ranks prove them before they run them. */
  readonly plans?: Readonly<Record<string, StoredPlan>>;
}

export interface StoredPlan {
  readonly collective: CollectiveName;
  /** In chorale's JSON form. */
  readonly plan: { readonly ranks: readonly unknown[] };
}

/** What a row of a program's table names where the program runs as it was written. */
export const AS_WRITTEN = "as-written";

/** The kernels that a backend has by hand, by collective. */
export type KernelNames = Readonly<Record<CollectiveName, readonly string[]>>;

/** Where choices are made: facts that are the same on all ranks of a group. */
export interface ChoicePlace {
  readonly backend: string;
  /** The backend whose tables are used, where that is another one. */
  readonly tablesOf?: string;
  readonly group: string;
  readonly numRanks: number;
  readonly topology: string;
  readonly kernels: KernelNames;
}

/** Who hears of a group's choices. */
export interface ChoiceNews {
  /** One line for each choice when it is first made. Absent where nobody wants to hear of them. */
  readonly selected?: (line: string) => void;
  /** One text for each table that is passed over. */
  readonly passedOver: (text: string) => void;
}

/** One choice: what serves which sizes. */
export interface Choice {
  readonly served: Served;
  readonly fromBytes: number;
  /** The first size that it does not serve. */
  readonly toBytes: number;
  /** Whose table it is: `shipped 2026-11-28`, or `algorithm:` for a call that names it. */
  readonly source: string;
  /** What serves the same sizes where calls are captured; absent: this one does. */
  readonly captured?: Choice;
  /** Calls that it served. Whoever asks counts. */
  calls: number;
}

/**
 * Checks a document that comes from a file.
 * @throws FormatError naming the field
 */
export function checkChoices(value: unknown, where: string): ChoiceDocument {
  const refuse: Refuse = (field, problem) => new FormatError(where, problem, { field });
  const document = value as Partial<ChoiceDocument> | null;
  if (typeof document !== "object" || document === null) throw refuse("choices", "must be an object");
  if (document.schemaVersion !== CHOICES_SCHEMA_VERSION) {
    throw refuse("choices.schemaVersion", `must be ${CHOICES_SCHEMA_VERSION}`);
  }
  for (const name of ["source", "date"] as const) {
    if (typeof document[name] !== "string") throw refuse(`choices.${name}`, "must be a text");
  }
  if (!Array.isArray(document.tables)) throw refuse("choices.tables", "must be a list");
  document.tables.forEach((table: Partial<ChoiceTable> | null, i) => {
    const at = `choices.tables[${i}]`;
    if (typeof table?.backend !== "string") throw refuse(`${at}.backend`, "must be a text");
    if (!COLLECTIVE_NAMES.includes(table.collective as CollectiveName)) {
      throw refuse(`${at}.collective`, `must be one of ${COLLECTIVE_NAMES.join(", ")}`);
    }
    const [least, most] = Array.isArray(table.ranks) ? table.ranks : [];
    const isRange =
      Number.isInteger(least) && Number.isInteger(most) && (least ?? 0) >= 1 && (most ?? 0) >= (least ?? 0);
    if (!isRange || table.ranks?.length !== 2) throw refuse(`${at}.ranks`, "must be the fewest and the most ranks");
    const { dtypes, topology, built, program, rows } = table;
    if (dtypes !== undefined && !(Array.isArray(dtypes) && dtypes.every((dtype) => DTYPE_NAMES.includes(dtype)))) {
      throw refuse(`${at}.dtypes`, "must be a list of element types");
    }
    if (topology !== undefined && typeof topology !== "string") throw refuse(`${at}.topology`, "must be a text");
    if (built !== undefined && built !== true) throw refuse(`${at}.built`, "must be true or absent");
    if (program !== undefined && !/^[0-9a-f]{16}$/.test(String(program))) {
      throw refuse(`${at}.program`, "must be the 16 digits of a plan's hash, or absent");
    }
    if (!Array.isArray(rows) || rows.length === 0) throw refuse(`${at}.rows`, "must be a list with one row or more");
    rows.forEach((row: Partial<ChoiceRow> | null, j) => {
      const above = j === 0 ? -1 : (rows[j - 1] as ChoiceRow).fromBytes;
      const isNext = Number.isSafeInteger(row?.fromBytes) && (row?.fromBytes ?? 0) > above;
      if (!isNext || (j === 0 && row?.fromBytes !== 0)) {
        throw refuse(`${at}.rows[${j}].fromBytes`, j === 0 ? "must be 0" : `must be above ${above}, the row before`);
      }
      checkUses(row ?? {}, table as ChoiceTable, `${at}.rows[${j}]`, refuse);
    });
  });
  if (document.plans !== undefined) checkStoredPlans(document.plans, refuse);
  return document as ChoiceDocument;
}

type Refuse = (field: string, problem: string) => FormatError;

/** What a row says of direct and of captured calls. */
function checkUses({ use, captured }: Partial<ChoiceRow>, table: ChoiceTable, at: string, refuse: Refuse): void {
  const uses = captured === undefined ? { use } : { use, captured };
  for (const [field, label] of Object.entries(uses)) {
    if (typeof label !== "string") throw refuse(`${at}.${field}`, "must be a text");
    try {
      parseServed(label, []);
    } catch (error) {
      throw refuse(`${at}.${field}`, (error as Error).message);
    }
  }
  if (captured === undefined) return;
  const field = `${at}.captured`;
  const kernels = CAPTURING.get(table.backend);
  if (kernels === undefined) {
    throw refuse(field, `must be absent: only ${[...CAPTURING.keys()].join(", ")} captures calls`);
  }
  if (table.program !== undefined)
    throw refuse(field, "must be absent: runs of a program are served alike, captured or not");
  if (captured === use) throw refuse(field, "must differ from use, or be absent");
  if (kernels.includes(captured)) {
    throw refuse(
      field,
      `must name an algorithm: calls of ${captured} connect ranks first, which only a direct call can`,
    );
  }
}

/** Names and what is needed to look a plan up; the verifier looks at the rest before the plan runs. */
function checkStoredPlans(plans: unknown, refuse: Refuse): void {
  if (typeof plans !== "object" || plans === null || Array.isArray(plans))
    throw refuse("choices.plans", "must be an object");
  for (const [name, stored] of Object.entries(plans as Record<string, Partial<StoredPlan> | null>)) {
    const at = `choices.plans.${name}`;
    if (!/^[a-z][a-z0-9]*(-[a-z0-9]+)*-h[0-9a-f]{8}$/.test(name)) {
      throw refuse(
        at,
        "must be named in lower-case words joined by hyphens, the last an h and eight digits of the plan's hash",
      );
    }
    if (!isServed(String(stored?.collective)))
      throw refuse(`${at}.collective`, `must be one of ${SERVED_COLLECTIVES.join(", ")}`);
    const ranks = stored?.plan?.ranks;
    if (!Array.isArray(ranks) || ranks.length === 0) throw refuse(`${at}.plan`, "must be a plan with ranks");
  }
}

/** Makes a group's choices, and keeps them: what was chosen once for a collective, dtype and size range is looked up. */
export class Choices {
  readonly #place: ChoicePlace;
  readonly #documents: readonly ChoiceDocument[];
  /** By collective and dtype: the ranges of the table that fits, ascending. */
  readonly #known = new Map<string, readonly Choice[]>();
  readonly #forced = new Map<string, Choice>();
  readonly #news: ChoiceNews | undefined;
  readonly #listener: ChoiceNews["selected"];
  readonly #told = new Set<Choice>();
  readonly #warned = new Set<string>();
  readonly #hasPrograms: boolean;

  /**
   * @param documents the first one that has a fitting table wins; the last one must have a table for everything
   * @param news for the one of several that make the same choices
   */
  constructor(place: ChoicePlace, documents: readonly ChoiceDocument[], news?: ChoiceNews) {
    this.#place = place;
    this.#documents = documents;
    this.#news = news;
    this.#listener = news?.selected;
    this.#hasPrograms = documents.some(({ tables }) => tables.some(({ program }) => program !== undefined));
  }

  /**
   * What serves runs of a program: a variant of it, or itself as a kernel named `AS_WRITTEN`; `undefined` where no table is
   * about it. The caller adds to `calls`.
   * @param program the hash of its plan
   */
  variantOf(program: string, collective: CollectiveName, dtype: DType, sizeBytes: number): Choice | undefined {
    if (!this.#hasPrograms) return undefined;
    const key = `run ${program} ${dtype}`;
    let ranges = this.#known.get(key);
    if (ranges === undefined) {
      ranges = this.#rangesOf(collective, dtype, program) ?? [];
      this.#known.set(key, ranges);
    }
    const found = rangeAt(ranges, sizeBytes);
    const isNews = found !== undefined && this.#listener !== undefined && !this.#told.has(found);
    if (isNews) this.#tell("run", dtype, sizeBytes, found);
    return found;
  }

  /** Whether somebody hears of choices when they are first made. */
  get isHeard(): boolean {
    return this.#listener !== undefined;
  }

  /** What serves a call of a size. The caller adds to `calls`. */
  choose(collective: CollectiveName, dtype: DType, sizeBytes: number): Choice {
    const found = rangeAt(this.ranges(collective, dtype), sizeBytes) as Choice;
    if (this.#listener !== undefined && !this.#told.has(found)) this.#tell(collective, dtype, sizeBytes, found);
    return found;
  }

  /**
   * What a call names with `algorithm:`.
   * @throws InvalidArgumentError that lists what the collective accepts here
   */
  named(collective: CollectiveName, dtype: DType, sizeBytes: number, label: string): Choice {
    const known = this.knownName(collective, label);
    if (known !== undefined) return known;
    const accepted = () =>
      `one of ${this.accepted(collective).join(", ")}; a plan's name also with *INSTANCES and /CHUNKS`;
    if (typeof label !== "string") throw new InvalidArgumentError("algorithm", label, accepted());
    const kernels = this.#place.kernels[collective];
    const served = parseServed(label, kernels);
    if (served.kind === "plan" && served.shape !== undefined && !CAPTURING.has(this.#place.backend)) {
      const accepted = `${label.slice(0, label.indexOf("@"))} alone: on ${this.#place.backend} nothing has a device's shapes`;
      throw new InvalidArgumentError("algorithm", label, accepted);
    }
    if (served.kind === "plan" && !isAlgorithmFor(served, collective, this.#place.numRanks)) {
      throw new InvalidArgumentError("algorithm", label, accepted());
    }
    const choice = { served, fromBytes: 0, toBytes: Number.POSITIVE_INFINITY, source: "algorithm:", calls: 0 };
    this.#forced.set(`${collective} ${label}`, choice);
    this.#tell(collective, dtype, sizeBytes, choice);
    return choice;
  }

  /** As `named`, of a label that a call had before. */
  knownName(collective: CollectiveName, label: string): Choice | undefined {
    return typeof label === "string" ? this.#forced.get(`${collective} ${label}`) : undefined;
  }

  /** Names that `algorithm:` takes for a collective in this group. */
  accepted(collective: CollectiveName): readonly string[] {
    return [...this.#place.kernels[collective], ...namesOfAlgorithms(collective, this.#place.numRanks)];
  }

  /** The choices for a collective and element type, by size. */
  ranges(collective: CollectiveName, dtype: DType): readonly Choice[] {
    const key = `${collective} ${dtype}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const made = this.#rangesOf(collective, dtype);
    if (made === undefined) {
      const accepted = `one that a table of the ${this.#place.backend} backend has`;
      throw new InvalidArgumentError("collective", collective, accepted);
    }
    this.#known.set(key, made);
    return made;
  }

  /**
   * The smallest size for which a caller has to ask `choose`: below it, a kernel serves every element type, and nobody
   * wants to hear of it. Infinity when there is none.
   */
  firstPlanBytes(collective: string): number {
    if (this.#listener !== undefined) return 0;
    const fitting = this.#documents.flatMap((document) =>
      document.tables.filter((table) => this.#fits(table, collective, undefined)),
    );
    const rows = fitting.flatMap(({ rows }) =>
      rows.filter(({ use }) => !this.#isKernel(collective as CollectiveName, use)),
    );
    return Math.min(Number.POSITIVE_INFINITY, ...rows.map(({ fromBytes }) => fromBytes));
  }

  /** Tells, where that was asked for, that a choice could not be used, and what serves in its place is the first kernel. */
  refused({ served }: Choice, why: string): void {
    this.#listener?.(`chorale select: ${served.label} cannot run in group ${this.#place.group}: ${why}`);
  }

  /** How many calls each choice served, by `collective algorithm`. */
  counts(): Record<string, number> {
    const counts: Record<string, number> = {};
    const add = (key: string, { calls }: Choice) => {
      if (calls > 0) counts[key] = (counts[key] ?? 0) + calls;
    };
    for (const [key, ranges] of this.#known) {
      const what = key.slice(0, key.indexOf(" "));
      for (const range of ranges) {
        add(`${what} ${range.served.label}`, range);
        if (range.captured !== undefined) add(`${what} ${range.captured.served.label}`, range.captured);
      }
    }
    for (const [key, choice] of this.#forced) add(key, choice);
    return counts;
  }

  #isKernel(collective: CollectiveName, use: string): boolean {
    return this.#place.kernels[collective].includes(use);
  }

  /** @param dtype `undefined`: for any */
  #fits(table: ChoiceTable, collective: string, dtype: DType | undefined, program?: string): boolean {
    const { backend, tablesOf = backend, topology, numRanks } = this.#place;
    const [least, most] = table.ranks;
    return (
      table.backend === tablesOf &&
      table.collective === collective &&
      table.program === program &&
      numRanks >= least &&
      numRanks <= most &&
      (table.topology === undefined || table.topology === topology) &&
      (table.built !== true || hasBuiltPlans(numRanks)) &&
      (dtype === undefined || table.dtypes === undefined || table.dtypes.includes(dtype))
    );
  }

  /** @param program whose table is wanted; that of the collective where absent */
  #rangesOf(collective: CollectiveName, dtype: DType, program?: string): readonly Choice[] | undefined {
    for (const { tables, source, date } of this.#documents) {
      const table = tables.find((one) => this.#fits(one, collective, dtype, program));
      if (table === undefined) continue;
      const kernels = program === undefined ? this.#place.kernels[collective] : [AS_WRITTEN];
      const rows = table.rows.map(({ fromBytes, use, captured }) => ({
        fromBytes,
        served: parseServed(use, kernels),
        inGraphs: captured === undefined ? undefined : parseServed(captured, kernels),
      }));
      // A file may name what another version had: then the next document serves, on all ranks alike.
      const { numRanks } = this.#place;
      const unknown = rows
        .flatMap(({ served, inGraphs }) => (inGraphs === undefined ? [served] : [served, inGraphs]))
        .find((served) => served.kind !== "kernel" && !isAlgorithmFor(served, collective, numRanks));
      if (unknown !== undefined) {
        this.#warn(`${source} ${date}`, collective, unknown.label);
        continue;
      }
      return rows.map(({ fromBytes, served, inGraphs }, i) => {
        const toBytes = rows[i + 1]?.fromBytes ?? Number.POSITIVE_INFINITY;
        const common = { fromBytes, toBytes, source: `${source} ${date}` };
        const captured = inGraphs && { ...common, served: inGraphs, calls: 0 };
        return { ...common, served, ...(captured && { captured }), calls: 0 };
      });
    }
    return undefined;
  }

  /** Tells, once, of a table that is passed over. */
  #warn(source: string, collective: CollectiveName, label: string): void {
    const { backend, numRanks, group } = this.#place;
    const what = `the table of choices "${source}" for ${collective} on ${backend}`;
    const text = `${what} names ${label}, which is no algorithm for ${collective} of ${numRanks} ranks here: another table serves. Tune again (chorale tune), or register the algorithm before it is first used`;
    if (this.#warned.has(text)) return;
    this.#warned.add(text);
    this.#news?.passedOver(`${text} (group ${group})`);
  }

  #tell(collective: CollectiveName | "run", dtype: DType, sizeBytes: number, choice: Choice): void {
    if (this.#listener === undefined) return;
    this.#told.add(choice);
    const { backend, group, numRanks, topology } = this.#place;
    const { fromBytes, toBytes, served, captured, source } = choice;
    const upTo = toBytes === Number.POSITIVE_INFINITY ? "" : ` to ${formatSize(toBytes)}`;
    const inGraphs = captured === undefined ? "" : `in graphs ${captured.served.label}, `;
    this.#listener(
      `chorale select: ${collective} of ${dtype}, ${formatSize(sizeBytes)}, group ${group} of ${numRanks} ranks on ${backend} (${topology}): ` +
        `${served.label}, a ${served.kind}, ${inGraphs}from ${formatSize(fromBytes)}${upTo}; ${source}`,
    );
  }
}

/** The last of ascending ranges that begins at a size or below it. */
function rangeAt(ranges: readonly Choice[], sizeBytes: number): Choice | undefined {
  let found = ranges[0];
  for (const range of ranges) if (sizeBytes >= range.fromBytes) found = range;
  return found;
}

/** Words of `CHORALE_LOG` that mean nothing are told once in a thread. */
let hasToldWords = false;

/** For the first member of a group, whose members make the same choices: selections go to where `CHORALE_LOG` lists `select`. */
export function choiceNews(member: number): ChoiceNews | undefined {
  if (member !== 0) return undefined;
  // Among what it separates by commas.
  const words = (process.env["CHORALE_LOG"] ?? "").split(",").map((word) => word.trim());
  const tells = words.includes("select");
  const unknown = words.filter((word) => word !== "select" && word !== "");
  if (unknown.length > 0 && !hasToldWords) {
    hasToldWords = true;
    const text = `CHORALE_LOG lists ${unknown.map((word) => JSON.stringify(word)).join(", ")}; only select is known`;
    process.emitWarning(text, { type: "ChoraleWarning", code: "CHORALE_UNKNOWN_LOG" });
  }
  return {
    ...(tells ? { selected: (line) => void process.stderr.write(`${line}\n`) } : {}),
    passedOver: (text) => process.emitWarning(text, { type: "ChoraleWarning", code: "CHORALE_UNKNOWN_ALGORITHM" }),
  };
}
