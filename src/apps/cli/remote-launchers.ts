/**
 * The launchers of the other hosts of a list, started by ssh: each runs `chorale launch` with its number, and gets the world's
 * secret as the first line of its standard input, which stands in no argument list. When that input ends, because this
 * process or the connection has ended, the other launcher ends too.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { UnavailableError } from "../../core/index.ts";
import type { ListedHost } from "./host-file.ts";

/** How long launchers that were told to end may take, ms. */
const END_MS = 5_000;
/** How long those may take that end because their world has, ms. */
const SELF_MS = 3_000;
const SAID_CHARACTERS = 2_000;
/** Variables that go along; those that hold a secret, or are of this host or rank alone, do not. */
const SENT_VARIABLES =
  /^(CHORALE_(?!SECRET|RDZV|TCP_HOST|RANK|WORLD_SIZE|NODE_RANK|LOCAL_|GENERATION)|NCCL_|LD_LIBRARY_PATH$)/;

export interface RemoteCommand {
  readonly node: number;
  readonly host: ListedHost;
  /** What is run here, word by word. */
  readonly words: readonly string[];
}

/** A word as sh takes it. */
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The commands that start the launchers of all hosts but the first. @param flags those of the launch that count there too */
export function remoteCommands(
  hosts: readonly ListedHost[],
  options: {
    readonly ssh: string;
    readonly rendezvous: string;
    readonly flags: readonly string[];
    readonly script: string;
    readonly program: readonly string[];
    readonly env: Readonly<Record<string, string | undefined>>;
  },
): readonly RemoteCommand[] {
  const { ssh, rendezvous, flags, script, program, env } = options;
  const sent = Object.entries(env)
    .filter(([name, value]) => SENT_VARIABLES.test(name) && value !== undefined)
    .map(([name, value]) => `${name}=${value}`)
    .sort();
  return hosts.slice(1).map((host, index) => {
    const node = index + 1;
    const place = ["--nnodes", String(hosts.length), "--node-rank", String(node), "--rdzv", rendezvous];
    const launch = [...program, "launch", "-n", String(host.ranks), ...flags, ...place, "--secret-stdin", script];
    const variables = sent.length === 0 ? [] : ["env", ...sent];
    const command = `cd ${quoted(process.cwd())} && exec ${[...variables, ...launch].map(quoted).join(" ")}`;
    const client = ssh.split(/\s+/).filter(Boolean);
    const isSsh = /(^|\/)ssh$/.test(client[0] ?? "");
    return { node, host, words: [...client, ...(isSsh ? ["-T", "-o", "BatchMode=yes"] : []), host.target, command] };
  });
}

export class RemoteLaunchers {
  readonly #children: ChildProcess[] = [];
  readonly #ends: Promise<void>[] = [];
  #isOver = false;

  /**
   * Starts them. What they print is passed on by line.
   * @param lost is told when one ended before the world did: ssh could not reach it, or what it ran failed
   */
  start(commands: readonly RemoteCommand[], secret: string, lost: (error: Error) => void): void {
    for (const { node, host, words } of commands) {
      const [program = "ssh", ...rest] = words;
      const child = spawn(program, rest, { stdio: ["pipe", "pipe", "pipe"] });
      this.#children.push(child);
      let said = "";
      for (const stream of ["stdout", "stderr"] as const) {
        let part = "";
        child[stream].setEncoding("utf8").on("data", (chunk: string) => {
          const lines = (part + chunk).split("\n");
          part = lines.pop() ?? "";
          for (const line of lines) process[stream].write(`${line}\n`);
          if (stream === "stderr") said = (said + chunk).slice(-SAID_CHARACTERS);
        });
        child[stream].on("end", () => part !== "" && process[stream].write(`${part}\n`));
      }
      // One that ended before it read is told of below.
      child.stdin.on("error", () => {}).write(`${secret}\n`);
      const refuse = (how: string) => {
        if (this.#isOver) return;
        const why = said.trim().split("\n").slice(-3).join("; ");
        const mend = `Try it: ${[program, ...rest.slice(0, -1)].map(quoted).join(" ")} true. It must ask for no password.`;
        lost(new UnavailableError(`host ${node} (${host.target})`, `${how}${why === "" ? "" : `: ${why}`}`, mend));
      };
      child.on("error", (error) => refuse(`${program} could not be started (${error.message})`));
      const ended = new Promise<void>((resolve) => child.on("close", () => resolve()).on("error", () => resolve()));
      this.#ends.push(ended);
      child.on("close", (code, signal) => {
        if (code !== 0) refuse(`its launcher ended with ${signal ?? `code ${code}`}`);
      });
    }
  }

  /**
   * Waits until they have ended, and ends those that do not.
   * @param bySelf they have been told of the end of their world, and need time to say so
   */
  async end(bySelf: boolean): Promise<void> {
    this.#isOver = true;
    const tell = () => {
      for (const child of this.#children) child.stdin?.end();
    };
    const telling = setTimeout(tell, bySelf ? SELF_MS : 0);
    const killing = setTimeout(() => {
      for (const child of this.#children) child.kill("SIGKILL");
    }, END_MS + SELF_MS);
    await Promise.all(this.#ends);
    clearTimeout(telling);
    clearTimeout(killing);
  }
}
