/** What the comparisons with other libraries measure: the collectives that algorithms can serve, and a message. */
import { SERVED_COLLECTIVES } from "../../dist/runtime/executor/internal.js";

export const OPERATIONS = [...SERVED_COLLECTIVES, "send"];
