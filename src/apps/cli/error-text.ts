/** Errors of programs as text for their authors. */
import { foldersBeside } from "../../core/index.ts";

/** Frames of these say nothing to a program's author: chorale's, Node's, and those of what calls commands. */
const OWN = ["node:", "/node_modules/commander/", ...foldersBeside(import.meta.url, "../../")];

/** A stack with the frames of the program alone, but where a fault is ours. */
export function stackOf(error: Error): string {
  const lines = (error.stack ?? error.message).split("\n");
  const isOther = (line: string) => !/^\s+at /.test(line) || !OWN.some((own) => line.includes(own));
  const kept = lines.filter(isOther);
  const isExplained = error.name === "Error" || ("code" in error && error.code !== "INVARIANT");
  return (isExplained || kept.some((line) => /^\s+at /.test(line)) ? kept : lines).join("\n");
}
