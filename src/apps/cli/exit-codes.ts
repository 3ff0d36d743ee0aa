/** Exit codes of the command line: done, a check failed, bad usage, the environment lacks something. */
export const EXIT = { done: 0, checkFailed: 1, usage: 2, environment: 3 } as const;

/** What the system answers when the machine is at its end, and what to do then; its other answers are about a path. */
const LACKS: ReadonlyMap<unknown, string> = new Map([
  ["EMFILE", "Raise the limit of open files, such as by ulimit -n 1024: each rank loads its modules at once."],
  ["ENFILE", "The whole machine has too many open files: end what holds them, or raise fs.file-max."],
  ["ENOSPC", "Free space there, or name another folder; TMPDIR is the one for temporary files."],
  ["EDQUOT", "Free space there, or name another folder; TMPDIR is the one for temporary files."],
  ["EROFS", "Name a folder that can be written; TMPDIR is the one for temporary files."],
  ["ENOMEM", "Free memory, or start fewer ranks."],
]);

/** Says what the machine lacks, and how to give it, where that is why the system refused; undefined for other errors. */
export function describeLack(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  const isGone = "syscall" in error && error.syscall === "uv_cwd";
  const mend = isGone ? "The current folder was removed: go to one that is there." : LACKS.get(systemCode(error));
  return mend === undefined ? undefined : `${error.message.replace(/\.$/, "")}. ${mend}`;
}

/** The system's code of an error. Two kinds have it in their text alone: threads that cannot start, and Node 26's loader. */
function systemCode(error: Error): unknown {
  const code = "code" in error ? error.code : undefined;
  if (code === "ERR_WORKER_INIT_FAILED") return /\bE[A-Z]+\b(?=\W*$)/.exec(error.message)?.[0];
  if (/: too many open files\.?$/.test(error.message)) return "EMFILE";
  return code;
}
