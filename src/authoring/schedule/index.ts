export * from "./collective.ts";
export * from "./hash.ts";
export * from "./ir.ts";
export * from "./layout.ts";
export { formatOp, printPlan, printRank } from "./print.ts";
export { planFromJson, planSchema, planToJson } from "./schema.ts";
