// A script of the time before modules.
const { readFileSync } = require("node:fs");
const path = require("node:path");
const { joinWorld } = require("chorale");

async function main() {
  const world = await joinWorld();
  const x = Float32Array.of(world.rank + 1);
  await world.comm.allReduce(x);
  const isHere = readFileSync(path.join(__dirname, path.basename(__filename)), "utf8").startsWith("// A script");
  console.log(`sum ${x[0]} of ${world.size}, found itself: ${isHere}`);
  await world.close();
}

if (require.main === module) main();
