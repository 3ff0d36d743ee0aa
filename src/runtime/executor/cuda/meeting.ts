/**
 * A kernel in which ranks do nothing but meet: what each was given on its stream before is done when it ends, on all of them.
 * Copies of copy engines stand between two of its launches.
 */
import { DEFAULT_PLAN_OPTIONS, type ExecutionPlan, PLAN_SCHEMA_VERSION } from "../../../authoring/plan/index.ts";
import { deepFreeze } from "../../../core/index.ts";
import { type GeneratedKernel, generateCuda } from "./generate.ts";

/** What a group of so many ranks launches to meet. */
export interface Meeting {
  readonly plan: ExecutionPlan;
  readonly kernel: GeneratedKernel;
}

const NOTHING = { chunks: 0, segments: 1 } as const;
const meetings = new Map<number, Meeting>();

/** The meeting of so many ranks, the same for all groups of a process. */
export function meetingOf(numRanks: number): Meeting {
  let meeting = meetings.get(numRanks);
  if (meeting === undefined) {
    const plan = planOf(numRanks);
    // One warp; its one block ends when all have come, and so its launches follow each other.
    meeting = { plan, kernel: generateCuda(plan, { dtype: "u8", threads: 32, relaunches: true }) };
    meetings.set(numRanks, meeting);
  }
  return meeting;
}

function planOf(numRanks: number): ExecutionPlan {
  return deepFreeze<ExecutionPlan>({
    schemaVersion: PLAN_SCHEMA_VERSION,
    name: "meeting",
    mode: "sound",
    collective: { operation: "barrier", numRanks, chunksPerPart: 1, inPlace: false },
    options: DEFAULT_PLAN_OPTIONS,
    ranks: Array.from({ length: numRanks }, (_, rank) => ({
      rank,
      input: NOTHING,
      output: NOTHING,
      scratch: NOTHING,
      channels: { memory: [], port: [], switch: [] },
      semaphores: [],
      strands: [],
    })),
    sources: [],
  });
}
