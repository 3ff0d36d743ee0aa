/**
 * Runs plans on the CPU: `PreparedPlan` is one rank's, ready to run; the strand machine executes it in WebAssembly.
 * It refuses to know how ranks reach each other (`../transport.ts`) and how they wait: `run` returns when nothing moves.
 * Start reading at `prepared-plan.ts`; `docs/semantics.md` says what operations mean.
 */
export { COUNTER_BYTES } from "./image.ts";
export { buildExecutor } from "./module.ts";
export { PreparedPlan, type PreparedPlanParts, type StrandPosition, strandPositions } from "./prepared-plan.ts";
export { reductionDepth } from "./reduction-depth.ts";
export { addStrandMachine, type MachineExports, type MachineParts } from "./strand-machine.ts";
