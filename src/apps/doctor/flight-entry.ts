/** One operation of one rank, as a flight-recorder dump has it, and what it says in words. */
import { z } from "zod";
import type { FlightEntry } from "../../runtime/comm/index.ts";

/** What stands in a file, checked to be what the runtime writes. */
export const entrySchema: z.ZodType<FlightEntry> = z.object({
  group: z.string(),
  seq: z.number(),
  op: z.string(),
  call: z.string(),
  state: z.enum(["issued", "started", "running", "done", "failed"]),
  timeMs: z.number(),
  endMs: z.number().exactOptional(),
  reached: z.enum(["issued", "started", "running"]).exactOptional(),
  startUs: z.number().exactOptional(),
  durationUs: z.number().exactOptional(),
  peer: z.number().exactOptional(),
  dtype: z.string().exactOptional(),
  count: z.number().exactOptional(),
  inBatch: z.boolean().exactOptional(),
  strands: z.array(z.string()).exactOptional(),
});

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
