/**
 * Loads programs: a script of the user (default export `(args) => Program`, optionally a zod schema `args`), or an
 * algorithm of the library by its name.
 */
import { existsSync } from "node:fs";
import { ALGORITHMS, ARGUMENT_NAMES, algorithm } from "../../authoring/algorithms/index.ts";
import type { Program } from "../../authoring/language/index.ts";
import { operationInfo } from "../../collectives/index.ts";
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { importUserModule } from "../../runtime/world/index.ts";
import { isScript, type ProgramArgs } from "./program-args.ts";

interface ArgsSchema {
  /** What an object's schema names; absent of other schemas. */
  readonly shape?: object;
  safeParse(value: unknown): {
    success: boolean;
    data?: unknown;
    error?: { issues: readonly { path: readonly PropertyKey[]; message: string }[] };
  };
}

function isProgram(value: unknown): value is Program {
  return typeof value === "object" && value !== null && "recorder" in value && "collective" in value;
}

/** Whether FILE is a program: a script, or an algorithm of the library. */
export function isProgramFile(file: string): boolean {
  return isScript(file) || (!existsSync(file) && ALGORITHMS.some((a) => a.name === file));
}

/**
 * Loads a program.
 * @throws InvalidArgumentError when the file has no such export or refuses the arguments
 */
export async function loadProgram(file: string, args: ProgramArgs): Promise<Program> {
  if (!isScript(file)) {
    if (!("numRanks" in args))
      throw new InvalidArgumentError("--arg", described("without numRanks"), `numRanks=N for the algorithm ${file}`);
    const unknown = Object.keys(args).find((key) => !ARGUMENT_NAMES.includes(key));
    if (unknown !== undefined)
      throw new InvalidArgumentError(`--arg ${unknown}`, args[unknown], `one of ${ARGUMENT_NAMES.join(", ")}`);
    const { make, legal, collective, inPlace, takesChunks, hasLevels } = algorithm(file);
    const info = collective === "send_recv" ? undefined : operationInfo(collective);
    const without: readonly (readonly [name: string, isTaken: boolean | undefined, why: string])[] = [
      ["root", info?.rooted, `${collective} has no root`],
      ["op", info?.reduces, `${collective} reduces nothing`],
      ["chunks", takesChunks, `${file} is no pipeline`],
      ["ranksPerNode", hasLevels, `${file} knows no nodes`],
      ["sendCounts", collective === "all_to_all_v", `${collective} has no counts of its own`],
      ["sendTo", collective === "send_recv", `all ranks take part in ${collective}`],
    ];
    for (const [name, isTaken, why] of without)
      if (args[name] !== undefined && isTaken !== true)
        throw new InvalidArgumentError(`--arg ${name}`, args[name], `nothing: ${why}`);
    if (args["inPlace"] === true && !inPlace)
      throw new InvalidArgumentError("--arg inPlace", true, `false: ${file} does not work in place`);
    const { numRanks } = args;
    // Anything but a count is refused by the program itself.
    if (Number.isInteger(numRanks) && (numRanks as number) > 0 && !legal(numRanks as number)) {
      const some = Array.from({ length: 16 }, (_, i) => i + 1).filter(legal);
      throw new InvalidArgumentError("numRanks", numRanks, `what ${file} is defined for: ${some.join(", ")}, …`);
    }
    return make(args as unknown as Parameters<typeof make>[0]);
  }
  const module = await importUserModule(file, "FILE");
  const factory = module["default"];
  if (typeof factory !== "function") {
    throw new InvalidArgumentError(
      `default export of ${file}`,
      described(factory === undefined ? "missing" : `of type ${typeof factory}`),
      "a function (args) => Program",
    );
  }
  let checked: unknown = args;
  const schema = module["args"] as ArgsSchema | undefined;
  if (schema !== undefined && typeof schema.safeParse === "function") {
    const result = schema.safeParse(args);
    if (!result.success) {
      const issue = result.error?.issues[0];
      const name = issue?.path.map(String).join(".") ?? "";
      throw new InvalidArgumentError(
        `--arg ${name}`,
        args[name],
        `what ${file} asks for: ${issue?.message ?? "other arguments"}`,
      );
    }
    checked = result.data;
    // A schema drops what it does not know: a misspelt name would be ignored without a word.
    const { shape } = schema;
    const isKnown = (key: string) => Object.hasOwn(shape ?? {}, key) || Object.hasOwn(Object(checked), key);
    const unknown = shape === undefined ? undefined : Object.keys(args).find((key) => !isKnown(key));
    if (unknown !== undefined) {
      const known = Object.keys(shape ?? {}).join(", ");
      throw new InvalidArgumentError(`--arg ${unknown}`, args[unknown], `an argument that ${file} knows: ${known}`);
    }
  }
  const seen = new Set<PropertyKey>();
  const made: unknown = await (factory as (args: unknown) => unknown)(
    schema === undefined ? noteReads(args, seen) : checked,
  );
  // Without a schema, what the program never looks at is misspelt.
  const unread = schema === undefined ? Object.keys(args).find((key) => !seen.has(key)) : undefined;
  if (unread !== undefined)
    throw new InvalidArgumentError(
      `--arg ${unread}`,
      args[unread],
      seen.size === 0
        ? `no arguments: ${file} reads none`
        : `an argument that ${file} reads: ${[...seen].map(String).join(", ")}`,
    );
  if (!isProgram(made)) throw new InvalidArgumentError(`what ${file} returns`, made, "a Program, made by program(...)");
  return made;
}

/** `args`, noting which of them are asked for. Whoever lists or copies them all has read them all. */
function noteReads(args: ProgramArgs, seen: Set<PropertyKey>): ProgramArgs {
  return new Proxy(args, {
    get: (target, key, receiver) => {
      if (typeof key === "string") seen.add(key);
      return Reflect.get(target, key, receiver) as unknown;
    },
    has: (target, key) => {
      if (typeof key === "string") seen.add(key);
      return Reflect.has(target, key);
    },
    ownKeys: (target) => {
      for (const key of Object.keys(target)) seen.add(key);
      return Reflect.ownKeys(target);
    },
  });
}

/** Names of the library's algorithms, for messages. */
export function algorithmNames(): readonly string[] {
  return ALGORITHMS.map((a) => a.name);
}
