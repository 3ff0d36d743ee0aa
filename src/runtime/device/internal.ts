/**
 * The device runtime's second door, for backends: what they need of it and programs do not.
 * It gives no way past the checks of handles: addresses come from tensors that this room made.
 * Start reading at device-waiting.ts, which a world gives its own version of.
 */
export { deviceInfo, withContext } from "./device.ts";
export { deviceAddress, usableAddress } from "./device-tensor.ts";
export type { DeviceWaiting, StreamSource, WaitOptions } from "./device-waiting.ts";
export { LaunchGraph } from "./launch-graph.ts";
export type { SegmentListener, SegmentSource } from "./memory-pool.ts";
export { type OpenedRankDevice, openRankDevice, type RankDeviceOptions } from "./open-rank-device.ts";
export { mapSecond, unmapSecond } from "./second-mapping.ts";
export { callSynchronous } from "./synchronous-call.ts";
export { freeWorldTensor, worldDeviceTensor } from "./world-tensors.ts";
