/** What programs use of the executor: algorithms of their own by name, and the tables of choices. */
export { registerAlgorithm } from "./algorithm-names.ts";
export {
  CHOICES_SCHEMA_VERSION,
  type ChoiceDocument,
  type ChoiceRow,
  type ChoiceTable,
  checkChoices,
} from "./choices.ts";
export { machineChoices } from "./machine-choices.ts";
export { type AlgorithmRequest, parseServed, type RegisteredAlgorithm, type Served } from "./served.ts";
export { SHIPPED_CHOICES } from "./shipped-choices.ts";
