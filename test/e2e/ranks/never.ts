/** It joins its world, and then its top-level await never ends. */
import { joinWorld } from "../../../src/index.ts";

await joinWorld();
await new Promise(() => {});
