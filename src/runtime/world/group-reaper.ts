/**
 * Ends what rank processes have started when their launcher is killed. A rank ends with its launcher (rank-link.ts), by a
 * signal of the kernel that it cannot answer, and its children would go on alone. A shell that holds the other end of a
 * pipe notices the launcher's end in any case: it has the numbers of the process groups that ranks lead, and ends those
 * that are still there. It has a session of its own, so that no Ctrl-C reaches it; on Windows there is none.
 */
import { type ChildProcess, spawn } from "node:child_process";

/** Reads `+PID` and `-PID`; at the end of its input it ends the groups that are left. */
const SCRIPT = `left=" "
while read -r line; do
  pid="\${line#?}"
  case "$line" in
    +*) left="$left$pid " ;;
    -*) left="\${left%% $pid *} \${left#* $pid }" ;;
  esac
done
for pid in $left; do kill -s KILL -- "-$pid" 2>/dev/null; done`;

let shell: ChildProcess | undefined;
const groups = new Set<number>();

function tell(line: string): void {
  if (shell?.stdin?.writable) shell.stdin.write(`${line}\n`);
}

/** Ends the process group of `pid` together with this process, however this process ends. */
export function endWithLauncher(pid: number): void {
  if (process.platform === "win32") return;
  if (shell === undefined) {
    shell = spawn("/bin/sh", ["-c", SCRIPT], { stdio: ["pipe", "ignore", "ignore"], detached: true });
    // Without a shell, or a descriptor for its pipe, ranks still end; only what they started may not.
    shell.on("error", () => {});
    shell.stdin?.on("error", () => {});
    shell.unref();
    (shell.stdin as { unref?(): void } | null)?.unref?.();
  }
  groups.add(pid);
  tell(`+${pid}`);
}

/** The rank is gone in good order: its number may be another's soon. The shell ends with the last one. */
export function forgetGroup(pid: number): void {
  if (!groups.delete(pid)) return;
  tell(`-${pid}`);
  if (groups.size > 0) return;
  shell?.stdin?.end();
  shell = undefined;
}
