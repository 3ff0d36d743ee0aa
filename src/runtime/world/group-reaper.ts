/**
 * Ends what ranks have started when their launcher is killed. A rank ends with its launcher (rank-link.ts), by a
 * signal of the kernel that it cannot answer, and its children would go on alone. A shell that holds the other end of a
 * pipe notices the launcher's end in any case: it has the numbers of the process groups that ranks lead, and of the
 * processes that ranks which are threads have started, and ends those that are still there. It has a session of its own,
 * so that no Ctrl-C reaches it; on Windows there is none.
 */
import { type ChildProcess, spawn } from "node:child_process";

/**
 * Reads `+N`, `-N` and absolute paths; at the end of its input it ends what is left. N is a process, which ends with all that
 * it has started (of which Linux tells), or, below zero, a process group. Paths are folders, removed when something was left.
 */
const SCRIPT = `left=" "
while IFS= read -r line; do
  id="\${line#?}"
  case "$line" in
    +*) left="$left$id " ;;
    -*) left="\${left%% $id *} \${left#* $id }" ;;
    /*) set -- "$@" "$line" ;;
  esac
done
end() {
  for child in $(cat /proc/$1/task/*/children 2>/dev/null); do end "$child"; done
  kill -s KILL -- "$1" 2>/dev/null
}
[ "$left" = " " ] && exit
for id in $left; do end "$id"; done
# What was killed may be in the midst of a write there.
for folder in "$@"; do rm -rf -- "$folder" 2>/dev/null || { sleep 1; rm -rf -- "$folder"; }; done`;

let shell: ChildProcess | undefined;
const left = new Set<number>();

function tell(line: string): void {
  if (shell?.stdin?.writable) shell.stdin.write(`${line}\n`);
}

/** Ends the process group of `pid` together with this process, however this process ends. */
export function endWithLauncher(pid: number): void {
  add(-pid);
}

/**
 * Removes a folder of the group that was named last, when this process ends before the group does: a signal leaves it no time
 * to do so. A name with a line break is left to the next process (owned-files.ts).
 */
export function removeWithLauncher(folder: string): void {
  if (left.size > 0 && !folder.includes("\n")) tell(folder);
}

/** The rank is gone in good order: its number may be another's soon. */
export function forgetGroup(pid: number): void {
  remove(-pid);
}

/** Ends a process that a rank's thread has started, and what that has started, together with this process. */
export function endChildWithLauncher(pid: number): void {
  add(pid);
}

export function forgetChild(pid: number): void {
  remove(pid);
}

function add(id: number): void {
  if (process.platform === "win32") return;
  if (shell === undefined) {
    shell = spawn("/bin/sh", ["-c", SCRIPT], { stdio: ["pipe", "ignore", "ignore"], detached: true });
    // Without a shell, or a descriptor for its pipe, ranks still end; only what they started may not.
    shell.on("error", () => {});
    shell.stdin?.on("error", () => {});
    shell.unref();
    (shell.stdin as { unref?(): void } | null)?.unref?.();
  }
  left.add(id);
  tell(`+${id}`);
}

/** The shell ends with the last one. */
function remove(id: number): void {
  if (!left.delete(id)) return;
  tell(`-${id}`);
  if (left.size > 0) return;
  shell?.stdin?.end();
  shell = undefined;
}
