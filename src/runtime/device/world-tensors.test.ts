import { expect, it } from "vitest";
import { UnsupportedError } from "../../core/index.ts";
import type { RankDevice } from "./rank-device.ts";
import { worldDeviceTensor } from "./world-tensors.ts";

it("makes no tensor while a stream is captured, and asks the driver for nothing", () => {
  const at = { device: { numCaptures: 1 } } as RankDevice;
  const make = () => worldDeviceTensor(at, "f32", [4]);
  expect(make).toThrow(UnsupportedError);
  expect(make).toThrow("world.tensor inside capture() is not supported; make the tensor before it");
});
