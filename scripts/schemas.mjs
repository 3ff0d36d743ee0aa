/**
 * Writes schemas/inventory.schema.json from the zod schema: node scripts/schemas.mjs [LIBRARY] (default dist), and after it
 * `npx biome check --write schemas`, for the layout.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { toJSONSchema } from "zod";

const root = fileURLToPath(new URL("..", import.meta.url));
const library = resolve(process.argv[2] ?? join(root, "dist"));
const { inventorySchema } = await import(pathToFileURL(join(library, "machine/topology/index.js")).href);
mkdirSync(join(root, "schemas"), { recursive: true });
const schema = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  title: "chorale inventory",
  description:
    "What `chorale detect --json` prints: devices, topology, environment and warnings. Sizes are bytes, rates GB/s of 1e9 bytes in one direction; what is unknown is absent.",
  ...toJSONSchema(inventorySchema),
};
writeFileSync(join(root, "schemas/inventory.schema.json"), `${JSON.stringify(schema, null, 2)}\n`);
