/** An all-reduce that sends 8-bit floats in place of the tensor's elements. */
import { InvalidArgumentError, type Tensor, UnsupportedError } from "../../core/index.ts";
import type { NcclCommunicator } from "../backends/nccl/internal.ts";
import { type Communicator, type Data, driverOf, extensionOf, GroupCommunicator, type Work } from "../comm/index.ts";
import { DeviceReduction } from "./device-reduction.ts";
import { HostReduction } from "./host-reduction.ts";
import { checkQuantizedCall, type QuantizedAllReduceOptions } from "./quantized-options.ts";

const NO_OPTIONS = Object.freeze({});
const NAME = "quantizedAllReduce";

/**
 * Sums a tensor of f32, f16 or bf16 over all ranks, sending 8-bit floats: input[count] -> output[count]. Each rank rounds its input in
 * blocks that have a scale each, sends every other rank its part, sums its own part's contributions in f32, in the order of the ranks,
 * rounds the sum the same way once more, and sends that to all: two roundings, however many ranks there are. Two ranks send each other
 * everything, which is as many bytes, and both sum: one rounding, and that to the element type. Results are the same on all ranks, bit
 * for bit. About a quarter of the bytes of an all-reduce of f32 go over the links, and half of those of f16 and bf16.
 *
 * How far an element lies from the exact sum at most: `quantizedAllReduceErrorBound`. An element that is infinite or NaN on any rank,
 * or whose sum leaves f32, is NaN on all; the others of its block are as they would be with a 0 in its place.
 *
 * Tensors are in host memory, on every backend, or on the device, on nccl and cuda, where graphs can hold the call. A group of one rank
 * gets its input back. The call is not part of a batch. In host memory a deadline, a signal or calls of different sizes end quantised
 * all-reduces of the group, not its other calls; on the device, all of them.
 * @throws InvalidArgumentError, UnsupportedError, ClosedError before anything is sent, UnavailableError without NVRTC; its work ends with
 *   MismatchError where ranks ask for different counts, types, formats, block sizes or operators, OutOfMemoryError, TimeoutError,
 *   RankFailedError, AbortedError
 * @example
 * import { launch } from "chorale";
 *
 * const sums = await launch({
 *   ranks: 2,
 *   run: async (world) => {
 *     const { quantizedAllReduce } = await import("chorale/extensions");
 *     const gradients = world.tensor("f32", [4]);
 *     gradients.data.set([1, 2.7, -3, world.rank]);
 *     await quantizedAllReduce(world.comm, gradients, { format: "e4m3", blockSize: 128, op: "sum" });
 *     return [...gradients.data];
 *   },
 * });
 * console.log(sums[0]); // [2, 5.5, -6, 1]
 */
export function quantizedAllReduce(
  communicator: Communicator,
  data: Data,
  options: QuantizedAllReduceOptions = NO_OPTIONS,
): Work<Tensor> {
  if (!(communicator instanceof GroupCommunicator)) {
    throw new InvalidArgumentError("communicator", communicator, "a communicator of a world");
  }
  const checked = checkQuantizedCall(communicator, data, options);
  if (checked.input.storage.kind === "device") {
    if (!("enqueue" in driverOf(communicator))) {
      const accepted = "use nccl or cuda, or copy them to the host first";
      throw new UnsupportedError(`quantizedAllReduce of device tensors on ${communicator.backend}`, accepted);
    }
    return extensionOf(
      communicator,
      `${NAME} on the device`,
      () => new DeviceReduction(communicator as NcclCommunicator),
    ).submit(checked);
  }
  return extensionOf(communicator, NAME, (count) => new HostReduction(communicator, count)).submit(checked);
}
