#!/usr/bin/env node
// A reader that left early, as in `chorale detect | head -1`, is no error of ours.
process.stdout.on("error", (error) => {
  if (error.code === "EPIPE") process.exit();
  process.stderr.write(`chorale: cannot write its output: ${error.message}\n`);
  process.exit(1);
});
const command = await import("../dist/apps/cli/main.js").catch((error) => {
  if (error.code !== "EMFILE" && error.code !== "ENFILE") throw error;
  // Not even the modules that could say more can be opened.
  process.stderr.write("chorale: too many open files: raise the limit, such as by ulimit -n 1024\n");
  process.exit(3);
});
let isAnswered = false;
// Nothing is left that could settle what the command waits for, such as a promise of a program that it loaded.
process.once("beforeExit", () => {
  if (isAnswered) return;
  process.stderr.write(
    "chorale: nothing can settle the promise that this command waits for, such as one of your program\n",
  );
  process.exitCode = 1;
});
command.main(process.argv.slice(2)).then((code) => {
  isAnswered = true;
  process.exitCode = code;
});
