/** Reading plans that come as JSON, for whoever needs it: it loads the schemas, which most ranks do without. */
export { planFromJson } from "../../authoring/interchange/index.ts";
