/** What the scripts that test the verifier use of the oracle. */
export { mscclppBases } from "./bases.ts";
export { campaign } from "./campaign.ts";
export { isShapeless, judge } from "./judge.ts";
