/**
 * What a rank's thread or process runs: it attaches to the backend, offers the world to `joinWorld()`, imports the user's
 * module and calls its default function, and reports how it went. A rank that fails says so to its peers through the
 * backend's shared memory first, because the launcher's thread may be busy.
 */
import { StringDecoder } from "node:string_decoder";
import { InvalidArgumentError, show } from "../../core/index.ts";
import type { Backend } from "../comm/index.ts";
import { PortBootstrap } from "./bootstrap.ts";
import { attach } from "./engine.ts";
import { offerWorld } from "./join.ts";
import type { FromRank, Job, ToRank } from "./messages.ts";
import type { OutputStream } from "./output.ts";
import { openLink } from "./rank-link.ts";
import { toErrorRecord } from "./remote-error.ts";
import { createWorld, type World } from "./world.ts";

const link = openLink();
const post = (message: FromRank) => link.post(message);

let bootstrap: PortBootstrap | undefined;
let backend: Backend | undefined;
let world: World | undefined;
let failed = false;

process.setSourceMapsEnabled(true);
// A process writes to its pipes at once by itself.
if (link.kind === "thread") {
  sendOutputAtOnce("stdout");
  sendOutputAtOnce("stderr");
}
const exitSilently = reportExit();

process.on("uncaughtExceptionMonitor", (error) => {
  if (process.listenerCount("uncaughtException") > 0) return;
  fail(error);
  // The launcher tells the error: Node would print it a second time.
  if (link.kind === "process") exitSilently(1);
});

link.onMessage((message: ToRank) => {
  if (message.kind === "run") void run(message.job);
  else bootstrap?.receive(message);
});

async function run(job: Job): Promise<void> {
  failed = false;
  Object.assign(process.env, job.env);
  const { path } = job.module;
  process.argv = [process.argv[0] ?? process.execPath, path, ...job.args];
  bootstrap = new PortBootstrap(job.rank, job.worldSize, job.generation, post);
  // A pending top-level await on shared memory does not keep a rank alive: the link does, until the module is done.
  link.ref();
  try {
    backend = await attach(job.engine, job.rank);
    world = createWorld(backend, { args: job.args, data: job.data });
    offerWorld(world);
    const main = ((await import(job.module.url)) as { default?: unknown }).default;
    if (typeof main !== "function") {
      if (job.reused || main !== undefined) {
        throw new InvalidArgumentError(`default export of ${path}`, typeof main, "an async function (world, data)");
      }
      closeWhenIdle(world);
      if (!failed) post({ kind: "done", value: undefined });
    } else {
      const value: unknown = await main(world, job.data);
      await world.close();
      if (!failed) sendResult(value);
    }
  } catch (error) {
    fail(
      job.isFunction && error instanceof ReferenceError ? new ReferenceError(explain(error), { cause: error }) : error,
    );
    if (!job.reused) process.exit(1);
  } finally {
    if (!job.reused) link.unref();
  }
}

function explain(error: ReferenceError): string {
  return `${error.message}: the function was sent to its rank as text and sees nothing of its surroundings; pass values as \`data\`, and import() what it needs`;
}

function sendResult(value: unknown): void {
  try {
    post({ kind: "done", value });
  } catch (cause) {
    throw new InvalidArgumentError("result of the rank", show(value), "a value that structuredClone can copy", {
      cause,
    });
  }
}

/** A module without a default function is over when its thread has nothing left to do. */
function closeWhenIdle(open: World): void {
  process.once("beforeExit", () => {
    open.close().catch((error: unknown) => {
      fail(error);
      process.exit(1);
    });
  });
}

function fail(error: unknown): void {
  if (failed) return;
  failed = true;
  const record = toErrorRecord(error);
  // Also when this is the consequence of another rank's death: who waits for this rank in a group of their own must know.
  backend?.fail(backend.rank, describe(record));
  post({ kind: "failed", error: record });
}

function describe(record: { readonly name: string; readonly message: string }): string {
  return `${record.name}: ${record.message}`;
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

/** Makes process.exit() say so first. @returns the exit that says nothing */
function reportExit(): (code: number) => never {
  const exit = process.exit.bind(process);
  process.exit = (code) => {
    const exitCode = Number(code ?? process.exitCode ?? 0);
    post({ kind: "exiting", exitCode, worldOpen: world !== undefined && !world.closed });
    return exit(code ?? undefined);
  };
  return exit;
}
