/**
 * A folder for a campaign, with a small disk of its own in it that can be filled. It goes with the campaign, whatever signal ends
 * that; what one left that was killed goes when the next one begins.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const MARK = "small-disk-of-";
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/** When a process was started, of one that lives: its number alone may be another one's by now. */
function startOf(pid) {
  try {
    return readFileSync(`/proc/${pid}/stat`, "latin1").replace(/.*\) /s, "").split(" ")[19];
  } catch {
    return undefined;
  }
}

function remove(folder) {
  const disk = join(folder, "disk");
  const isMounted = readFileSync("/proc/mounts", "utf8").includes(` ${disk} `);
  // What lies on it may still be open.
  if (isMounted) execFileSync("umount", ["--lazy", disk]);
  rmSync(folder, { recursive: true, force: true });
}

/**
 * @param sizeMiB of the disk; 0 for none
 * @returns the folder, the folder `disk` in it, whether that is a disk of its own, and what removes all of it
 */
export function smallDisk(sizeMiB) {
  for (const name of readdirSync(tmpdir())) {
    const [pid, start] = name.startsWith(MARK) ? name.slice(MARK.length).split("-") : [];
    if (pid !== undefined && startOf(pid) !== start) remove(join(tmpdir(), name));
  }
  const folder = mkdtempSync(join(tmpdir(), `${MARK}${process.pid}-${startOf(process.pid)}-`));
  const disk = join(folder, "disk");
  mkdirSync(disk);
  const end = () => existsSync(folder) && remove(folder);
  for (const signal of SIGNALS)
    process.once(signal, () => {
      end();
      process.kill(process.pid, signal);
    });
  let isOwn = false;
  try {
    if (sizeMiB > 0)
      execFileSync("mount", ["-t", "tmpfs", "-o", `size=${sizeMiB}m`, "tmpfs", disk], { stdio: "ignore" });
    isOwn = sizeMiB > 0;
  } catch {
    // This user may not.
  }
  return { folder, disk, isOwn, end };
}
