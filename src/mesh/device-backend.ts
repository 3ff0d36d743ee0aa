/** Which runtime drives a family of devices. */
import type { Family } from "../machine/topology/index.ts";

const BACKENDS = {
  cpu: "cpu",
  "nvidia-gpu": "cuda",
  "amd-gpu": "rocm",
  "intel-gpu": "oneapi",
  "apple-gpu": "metal",
  "apple-npu": "coreml",
  vulkan: "vulkan",
  "intel-npu": "openvino",
  "amd-xdna": "xdna",
  tpu: "tpu",
  gaudi: "habana",
  neuron: "neuron",
  "qualcomm-ai": "qaic",
  cerebras: "cerebras",
  graphcore: "poplar",
  groq: "groq",
  "samsung-npu": "samsung-npu",
  "mediatek-npu": "mediatek-npu",
  "windows-gpu": "directml",
} as const satisfies Record<Family, string>;

export type DeviceBackend = (typeof BACKENDS)[Family];

/** The runtime that drives devices of a family: `cuda` for NVIDIA's GPUs, `cpu` for the host. */
export function deviceBackend(family: Family): DeviceBackend {
  return BACKENDS[family];
}
