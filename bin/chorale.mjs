#!/usr/bin/env node
import { main } from "../dist/apps/cli/main.js";

// A reader that left early, as in `chorale detect | head -1`, is no error of ours.
process.stdout.on("error", (error) => {
  if (error.code !== "EPIPE") throw error;
  process.exit();
});
process.exitCode = await main(process.argv.slice(2));
