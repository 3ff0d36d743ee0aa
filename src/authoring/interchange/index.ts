/**
 * Reads and writes plans in files: chorale's JSON, MSCCL++'s JSON, MSCCL's XML.
 * Refuses to run code of users and to judge plans: what is read has the right shape, no more.
 * Start reading in read-plan-file.ts, which tells the formats apart.
 */
export { planFromJson, planSchema, planToJson } from "./chorale-json.ts";
export { parseExact } from "./exact-json.ts";
export { expectCollective } from "./infer-collective.ts";
export { readMscclXml } from "./read-msccl-xml.ts";
export { readMscclpp } from "./read-mscclpp-json.ts";
export { readPlan } from "./read-plan-file.ts";
export { writeMscclXml } from "./write-msccl-xml.ts";
export { type MscclppHeader, mscclppCollective, writeMscclppPieces } from "./write-mscclpp-json.ts";
export { writeMscclpp } from "./write-mscclpp-program.ts";
