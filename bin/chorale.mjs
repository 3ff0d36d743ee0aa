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
process.exitCode = await command.main(process.argv.slice(2));
