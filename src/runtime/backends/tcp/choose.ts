/** Which schedule serves a collective: by operation and size. */
import type { Call } from "../../../collectives/index.ts";
import { InvariantError } from "../../../core/index.ts";
import {
  allGather,
  allReduce,
  allToAll,
  broadcast,
  equalParts,
  gather,
  type Place,
  partsOf,
  reduce,
  reduceScatter,
  scatter,
} from "./algorithms.ts";
import type { Schedule } from "./schedule.ts";

/** @param partBytes what the ranks agree on: the part of one rank, or the whole where there are no parts */
export function scheduleOf(call: Call, place: Place, partBytes: number): Schedule {
  const { op, root = 0, counts = [], sendCounts = [], recvCounts = [] } = call;
  const { size, elementBytes } = place;
  switch (op) {
    case "all_reduce":
      return allReduce(place, partBytes);
    case "broadcast":
      return broadcast(place, partBytes, root);
    case "reduce":
      return reduce(place, partBytes, root);
    case "all_gather":
      return allGather(place, equalParts(size, partBytes));
    case "all_gather_v":
      return allGather(place, partsOf(counts, elementBytes));
    case "reduce_scatter":
      return reduceScatter(place, equalParts(size, partBytes));
    case "reduce_scatter_v":
      return reduceScatter(place, partsOf(counts, elementBytes));
    case "all_to_all": {
      const parts = equalParts(size, partBytes);
      return allToAll(place, parts, parts, false);
    }
    case "all_to_all_v":
      return allToAll(place, partsOf(sendCounts, elementBytes), partsOf(recvCounts, elementBytes), true);
    case "gather":
      return gather(place, partBytes, root);
    case "scatter":
      return scatter(place, partBytes, root);
    default:
      throw new InvariantError(`${op} is no collective of data`);
  }
}
