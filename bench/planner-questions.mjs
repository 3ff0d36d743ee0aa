/**
 * Answers the questions of bench/results/planner-questions.md anew: runs each command that stands there and writes its first
 * lines below it, with the exit code. Of the ranks the first is kept, of the layouts that do not fit three.
 *
 *   npm run build && node bench/planner-questions.mjs [FILE]
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { flagsOf } from "../dist/apps/bench/script-flags.js";

const own = fileURLToPath(new URL("results/planner-questions.md", import.meta.url));
const file = flagsOf(import.meta.url, { allowPositionals: true }, ({ positionals }) => positionals[0] ?? own);
const program = fileURLToPath(new URL("../bin/chorale.mjs", import.meta.url));
const MAX_LINES = 16;
const MAX_REFUSED = 3;

/** Words of a command line, with quotes. */
const words = (line) => [...line.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2]);

function answer(command) {
  const { stdout, stderr, status } = spawnSync(process.execPath, [program, ...words(command).slice(1)], {
    encoding: "utf8",
    timeout: 120_000,
  });
  let [ranks, refused] = [0, 0];
  const kept = `${stdout}${stderr}`
    .trimEnd()
    .split("\n")
    .filter((line) => !/^ {2}(rank|\(first rank)/.test(line) || ranks++ === 0)
    .filter(
      (line) => !/^ {2}(\S.* (stage \d+ needs|not divisible)|and \d+ more)/.test(line) || refused++ < MAX_REFUSED,
    );
  return [...kept.slice(0, MAX_LINES), `(exit code ${status})`].join("\n");
}

const today = new Date().toISOString().slice(0, 10);
const [head = "", ...questions] = readFileSync(file, "utf8").split(/^(?=## )/m);
const answered = questions.map((question) => {
  const [, title, command] = /^(.*)\n+```\n(chorale .*)\n```/.exec(question) ?? [];
  if (command === undefined) throw new Error(`no command below: ${question.slice(0, 80)}`);
  return `${title}\n\n\`\`\`\n${command}\n\`\`\`\n\n\`\`\`\n${answer(command)}\n\`\`\`\n`;
});
writeFileSync(
  file,
  [head.replace(/\d{4}-\d\d-\d\d/, today).trimEnd(), ...answered].join("\n\n").replace(/\n{3,}/g, "\n\n"),
);
