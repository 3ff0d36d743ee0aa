/** The schedules of a group's last calls: programs make the same ones again and again. */
import type { Call } from "../../../collectives/index.ts";
import type { Place } from "./algorithms.ts";
import { scheduleOf } from "./choose.ts";
import type { Schedule } from "./schedule.ts";
import { labelOf } from "./socket-ways.ts";

/** Most that are kept: looked through one by one. */
const MAX_KNOWN = 16;

interface Counter {
  calls: number;
}

interface Known {
  readonly op: Call["op"];
  readonly partBytes: number;
  readonly elementBytes: number;
  readonly root: number;
  readonly named: Place["schedule"];
  readonly pieceBytes: Place["pieceBytes"];
  readonly schedule: Schedule;
  readonly served: Counter;
}

export class KnownSchedules {
  #known: Known[] = [];
  readonly #served = new Map<string, Counter>();

  /** How often each schedule served, by `collective schedule`. */
  counts(): Readonly<Record<string, number>> {
    return Object.fromEntries([...this.#served].map(([name, { calls }]) => [name, calls]));
  }

  /** The schedule that serves a call, which is counted. @param partBytes see `scheduleOf` */
  of(call: Call, place: Place, partBytes: number): Schedule {
    const { op, root = 0 } = call;
    for (const known of this.#known) {
      const isSame = known.op === op && known.partBytes === partBytes && known.root === root;
      if (!isSame || known.elementBytes !== place.elementBytes) continue;
      if (known.named !== place.schedule || known.pieceBytes !== place.pieceBytes) continue;
      known.served.calls++;
      return known.schedule;
    }
    const schedule = scheduleOf(call, place, partBytes);
    const name = `${op} ${labelOf(schedule.name, place.pieceBytes)}`;
    const served = this.#served.get(name) ?? { calls: 0 };
    served.calls++;
    this.#served.set(name, served);
    const isFixed = call.counts === undefined && call.sendCounts === undefined;
    if (isFixed) {
      const { elementBytes, schedule: named, pieceBytes } = place;
      const known: Known = { op, partBytes, elementBytes, root, named, pieceBytes, schedule, served };
      this.#known = [...this.#known.slice(1 - MAX_KNOWN), known];
    }
    return schedule;
  }
}
