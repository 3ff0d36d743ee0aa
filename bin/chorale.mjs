#!/usr/bin/env node
import { main } from "../dist/apps/cli/main.js";

// A reader that left early, as in `chorale detect | head -1`, is no error of ours.
process.stdout.on("error", (error) => {
  if (error.code === "EPIPE") process.exit();
  process.stderr.write(`chorale: cannot write its output: ${error.message}\n`);
  process.exit(1);
});
process.exitCode = await main(process.argv.slice(2));
