/** One operation of one rank, as a flight-recorder dump has it, and what it says in words. */
import { z } from "zod";

export const entrySchema = z.object({
  group: z.string(),
  seq: z.number(),
  op: z.string(),
  call: z.string(),
  state: z.enum(["issued", "started", "running", "done", "failed"]),
  timeMs: z.number(),
  endMs: z.number().optional(),
  reached: z.enum(["issued", "started", "running"]).optional(),
  startUs: z.number().optional(),
  durationUs: z.number().optional(),
  peer: z.number().optional(),
  dtype: z.string().optional(),
  count: z.number().optional(),
  inBatch: z.boolean().optional(),
});
export type FlightEntry = z.infer<typeof entrySchema>;

/** How far a call came on a rank, in words. */
export function progressOf({ state, reached = "issued", timeMs }: FlightEntry): string {
  const said = {
    issued: "has called it, and the engine has not taken it",
    started: "has it on its stream",
    running: "is in it on its stream",
  };
  const issued = new Date(timeMs);
  // What is beyond a date is shown as the dump has it.
  const at = Number.isNaN(issued.getTime()) ? `${timeMs} ms since 1970` : issued.toISOString();
  const since = timeMs === 0 ? "" : `, issued at ${at}`;
  if (state === "done") return "is done with it";
  return `${state === "failed" ? said[reached] : said[state]}${since}`;
}
