/** What the scripts that test the verifier use of the oracle. */
export { mscclppBases } from "./bases.ts";
export { campaign } from "./campaign.ts";
export { compareAll, describeSmallPlan } from "./exhaustive-campaign.ts";
export { isShapeless, judge } from "./judge.ts";
export { meaninglessPlans } from "./meaningless.ts";
export { SHAPES } from "./small-alphabet.ts";
