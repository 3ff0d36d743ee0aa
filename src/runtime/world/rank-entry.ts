/**
 * What a rank's thread or process runs: it attaches to the backend, offers the world to `joinWorld()`, imports the user's
 * module and calls its default function, and reports how it went. A rank that fails says so to its peers through the
 * backend's shared memory too, because the launcher's thread may be busy.
 */
import { StringDecoder } from "node:string_decoder";
import { AbortedError, InvalidArgumentError, show, Tensor } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { checkCarried, reportUnseenAtExit } from "../comm/index.ts";
import { ignoreDebugSignal } from "./debug-signal.ts";
import { hasJoined, onJoining } from "./join.ts";
import type { FromRank, Job, ToRank } from "./messages.ts";
import type { OutputStream } from "./output.ts";
import { reportChildren } from "./rank-children.ts";
import { openLink } from "./rank-link.ts";
import { RankSession } from "./rank-session.ts";

ignoreDebugSignal();
const link = await openLink();
const post = (message: FromRank) => link.post(message);

let session: RankSession | undefined;
/** What runs is a script, which is not given the world but asks for it; known once it has run. */
let isScript = true;

// A process writes to its pipes at once by itself.
if (link.relaysOutput) {
  sendOutputAtOnce("stdout");
  sendOutputAtOnce("stderr");
}
if (link.kind === "thread") {
  reportChildren((pid, isAlive) => post({ kind: "child", pid, isAlive }));
}
const exitSilently = reportExit();

process.on("uncaughtExceptionMonitor", (error) => {
  if (process.listenerCount("uncaughtException") > 0) return;
  session?.fail(error);
  // The launcher tells the error: Node would print it a second time.
  if (link.kind === "process") exitSilently(1);
});

link.onMessage((message: ToRank) => {
  if (message.kind === "run") void run(message.job);
  else session?.receive(message);
});

async function run(job: Job): Promise<void> {
  const rank = new RankSession(job, post);
  session = rank;
  const { path } = job.module;
  process.argv = [process.argv[0] ?? process.execPath, path, ...job.args];
  // A pending top-level await on shared memory does not keep a rank alive: the link does, until the module is done.
  link.ref();
  const before = resourcesNow();
  try {
    const world = await rank.open();
    // For the user's files, not for those of chorale that are loaded by now: reading their maps takes longer than they do.
    process.setSourceMapsEnabled(true);
    const main = defaultExport(await importProgram(rank, job), job.module.isCommonJs);
    if (typeof main !== "function") {
      if (job.reused || main !== undefined) {
        throw new InvalidArgumentError(
          `default export of ${path}`,
          described(main === undefined ? "missing" : `of type ${typeof main}`),
          "an async function (world, data)",
        );
      }
      closeWhenIdle(rank);
      if (!rank.failed) post({ kind: "done", value: undefined, final: false });
    } else {
      isScript = false;
      const value: unknown = await main(world, job.data);
      await rank.close();
      if (!rank.failed) sendResult(value, job.reused && isUnfinished(before));
      else if (job.reused) process.exit(1);
    }
  } catch (error) {
    rank.fail(job.isFunction && error instanceof ReferenceError ? explainMissing(error) : error);
    // Also where threads are kept: one that the launcher ended meanwhile would leave behind what it was about to free.
    process.exit(1);
  } finally {
    if (!job.reused) link.unref();
  }
}

/**
 * Imports the program. Until that has asked for its world it can wait for nothing of chorale's: the link lets the rank end then, as
 * Node ends a program whose top-level await nothing can settle any more. From `joinWorld()` on it may wait for what keeps nothing alive.
 */
async function importProgram(rank: RankSession, { reused, module }: Job): Promise<{ default?: unknown }> {
  if (reused) return await import(module.url);
  const isOver = () => {
    rank.fail(
      new AbortedError(
        "the program never settles: its top-level await waits for a promise that nothing is left to resolve",
      ),
    );
    process.exit(1);
  };
  const stay = () => {
    process.off("beforeExit", isOver);
    link.ref();
  };
  process.once("beforeExit", isOver);
  onJoining(stay);
  if (!hasJoined()) link.unref();
  try {
    return await import(module.url);
  } finally {
    onJoining(undefined);
    stay();
  }
}

/** What a rank says of a name that the sent function does not find. */
function explainMissing(error: ReferenceError): ReferenceError {
  const name = /^(\S+) is not defined$/.exec(error.message)?.[1];
  const text =
    name !== undefined && /^(__\w|tslib|_(async|await|ts|class|object)_)/.test(name)
      ? `${name} is a helper of the compiler or test runner that made the program, and is not sent along; compile for Node 20 or newer (target es2022), which needs no helpers, or give a file as \`module\``
      : `the function was sent to its rank as text and sees nothing of its surroundings${name === undefined ? "" : `, ${name} among them`}; pass values as \`data\`, and import() what it needs`;
  return new ReferenceError(`${error.message}: ${text}`, { cause: error });
}

/** A CommonJS file may assign the function itself, or its `default`; a script assigns nothing. */
function defaultExport(module: { readonly default?: unknown }, isCommonJs: boolean): unknown {
  const exported = module.default;
  if (!isCommonJs || typeof exported !== "object" || exported === null) return exported;
  return (exported as { readonly default?: unknown }).default;
}

/** How many of each kind of timer, socket, child process and the like this thread has. */
function resourcesNow(): ReadonlyMap<string, number> {
  const counts = new Map<string, number>();
  for (const kind of process.getActiveResourcesInfo()) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  return counts;
}

/**
 * Whether the program left something running that may still act, or throw, when the thread has another world: a timer
 * that was not awaited. Immediates of this turn, and what the link itself uses, do not count.
 */
function isUnfinished(before: ReadonlyMap<string, number>): boolean {
  for (const [kind, count] of resourcesNow()) {
    if (!/^(Immediate|MessagePort|CloseReq|TickObject)$/.test(kind) && count > (before.get(kind) ?? 0)) return true;
  }
  return false;
}

function sendResult(value: unknown, unfinished: boolean): void {
  const argument = "result of the rank";
  if (value instanceof Tensor) {
    throw new InvalidArgumentError(
      argument,
      described(String(value)),
      "its values: tensor.toArray(), or tensor.data.slice()",
    );
  }
  checkCarried(value, argument, link.kind === "thread");
  try {
    post({ kind: "done", value, final: true, ...(unfinished ? { unfinished } : {}) });
  } catch (cause) {
    throw new InvalidArgumentError(argument, described(show(value)), "a value that structuredClone can copy", {
      cause,
    });
  }
}

/** A module without a default function is over when its thread has nothing left to do. */
function closeWhenIdle(rank: RankSession): void {
  process.once("beforeExit", () => {
    tellUnjoined();
    rank.close().catch((error: unknown) => {
      rank.fail(error);
      process.exit(1);
    });
  });
}

/**
 * A worker's own streams wait for the launcher's thread after the first chunk, and lose the rest when the thread is
 * ended while it blocks. Posting each chunk at once keeps what a rank said before it died.
 */
function sendOutputAtOnce(stream: OutputStream): void {
  const decoder = new StringDecoder("utf8");
  const send = (chunk: string | Uint8Array, encoding: BufferEncoding) => {
    const bytes = typeof chunk === "string" ? Buffer.from(chunk, encoding) : Buffer.from(chunk);
    post({ kind: "output", stream, text: decoder.write(bytes) });
  };
  const target = process[stream] as unknown as WritableInternals;
  // It may be a terminal that another launcher made: what goes through the link does not end there.
  Object.defineProperty(process[stream], "isTTY", { value: false });
  target._write = (chunk, encoding, done) => {
    send(chunk, encoding);
    done();
  };
  target._writev = (chunks, done) => {
    for (const { chunk, encoding } of chunks) send(chunk, encoding);
    done();
  };
}

interface WritableInternals {
  _write(chunk: string | Uint8Array, encoding: BufferEncoding, done: () => void): void;
  _writev(chunks: readonly { chunk: string | Uint8Array; encoding: BufferEncoding }[], done: () => void): void;
}

/** Says that the script never asked for the world: more often than not it was meant to. */
function tellUnjoined(): void {
  if (isScript && !hasJoined()) post({ kind: "unjoined" });
}

/** Makes process.exit() say so first. @returns the exit that says nothing */
function reportExit(): (code: number) => never {
  const exit = process.exit.bind(process);
  process.exit = (code) => {
    // While the groups have not failed: others are told of this end next.
    const asked = Number(code ?? process.exitCode ?? 0);
    const exitCode = reportUnseenAtExit(asked);
    if (exitCode === 0) tellUnjoined();
    const worldOpen = session?.worldOpen === true;
    post({ kind: "exiting", exitCode, worldOpen });
    // As the launcher tells it: of some backends peers hear it from here.
    const how = exitCode === 0 ? "called process.exit(0) with its world open" : `called process.exit(${exitCode})`;
    if (worldOpen) session?.abandon(how);
    // An argument that is undefined would reset process.exitCode.
    return exitCode !== asked ? exit(exitCode) : code == null ? exit() : exit(code);
  };
  return exit;
}
