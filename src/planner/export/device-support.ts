/**
 * Which accelerators an engine runs on, from its own documentation, for the version that `EXPORT_VERSIONS` names. Other
 * versions may run on more; what is not listed is refused, and the refusal names the engines that do run there.
 */
import type { Device, Family } from "../../machine/topology/index.ts";
import type { PlanDevices, ShardingPlan } from "../plan.ts";
import { ENGINE_NAMES, type EngineName } from "./engines.ts";

/** A family of devices that an engine runs on. */
interface RunsOn {
  readonly family: Family;
  /** NVIDIA: the least compute capability. */
  readonly least?: number;
  /** Architectures that are supported, where not all of the family are. */
  readonly archs?: RegExp;
  /** The devices, for messages. */
  readonly words: string;
  /** What must be installed for them beside the engine. */
  readonly needs?: string;
}

interface EngineSupport {
  readonly runsOn: readonly RunsOn[];
  readonly source: string;
}

const nvidia = (least: number): RunsOn => ({
  family: "nvidia-gpu",
  least,
  words: `NVIDIA GPUs from compute capability ${least.toFixed(1)}`,
});
const CPUS: RunsOn = { family: "cpu", words: "CPUs" };
const INTEL: RunsOn = { family: "intel-gpu", words: "Intel GPUs" };
const gaudi = (needs?: string): RunsOn => ({
  family: "gaudi",
  words: "Gaudi",
  ...(needs === undefined ? {} : { needs }),
});
const neuron = (needs: string): RunsOn => ({ family: "neuron", words: "Trainium and Inferentia", needs });

export const DEVICE_SUPPORT: Readonly<Record<EngineName, EngineSupport>> = {
  vllm: {
    runsOn: [
      nvidia(7),
      {
        family: "amd-gpu",
        archs: /^gfx(90a|942|950|110[01]|120[01])$/,
        words: "AMD MI200, MI300, MI350, RX 7900 and RX 9000",
      },
      INTEL,
      gaudi("the plugin vllm-gaudi"),
      { family: "tpu", words: "TPUs" },
      neuron("AWS's Neuron plugin for vLLM"),
      { ...CPUS, needs: "a build for CPUs" },
    ],
    source:
      "docs.vllm.ai v0.10 getting_started/installation (gpu, cpu, hardware plugins); vllm pull requests 21131 (Gaudi) and 21159 (Neuron)",
  },
  sglang: {
    runsOn: [
      nvidia(7.5),
      { family: "amd-gpu", archs: /^gfx9(42|50)$/, words: "AMD MI300 and MI350" },
      { ...INTEL, needs: "the build for XPU" },
      { ...CPUS, words: "Xeon CPUs", needs: "the build for Xeon with AMX" },
    ],
    source: "docs.sglang.io get_started/install and hardware-platforms; sglang pull request 1233 (7.5)",
  },
  "tensorrt-llm": {
    runsOn: [nvidia(8)],
    source: "nvidia.github.io/TensorRT-LLM 1.0 reference/support-matrix, features/quantization: Ampere to Blackwell",
  },
  "llama.cpp": {
    runsOn: [
      { ...nvidia(5), needs: "the CUDA backend" },
      { family: "amd-gpu", words: "AMD GPUs", needs: "the HIP or the Vulkan backend" },
      { ...INTEL, needs: "the SYCL or the Vulkan backend" },
      { family: "apple-gpu", words: "Apple GPUs" },
      { family: "vulkan", words: "GPUs with Vulkan", needs: "the Vulkan backend" },
      { family: "windows-gpu", words: "GPUs of Windows", needs: "the Vulkan backend" },
      CPUS,
    ],
    source: "llama.cpp README, supported backends; docs/build.md; CUDA 12's least compute capability",
  },
  pytorch: {
    runsOn: [
      nvidia(5),
      { family: "amd-gpu", words: "AMD GPUs" },
      INTEL,
      { family: "apple-gpu", words: "Apple GPUs" },
      gaudi(),
      { family: "tpu", words: "TPUs" },
      neuron("torch-neuronx"),
      CPUS,
    ],
    source: "pytorch.org/get-started; torch_xla, torch-neuronx and Gaudi's bridge for the accelerators",
  },
  deepspeed: {
    runsOn: [
      nvidia(6),
      { family: "amd-gpu", archs: /^gfx9/, words: "AMD Instinct GPUs" },
      INTEL,
      gaudi("DeepSpeed as Intel Gaudi ships it"),
      CPUS,
    ],
    source: "DeepSpeed 0.16 README (tested architectures, contributed accelerators), accelerator-setup-guide",
  },
  "megatron-lm": {
    runsOn: [nvidia(7)],
    source: "Megatron-LM README: NVIDIA GPUs with tensor cores",
  },
  torchrun: {
    runsOn: [
      nvidia(5),
      { family: "amd-gpu", words: "AMD GPUs" },
      INTEL,
      { family: "apple-gpu", words: "one Apple GPU" },
      gaudi("Gaudi's PyTorch bridge"),
      neuron("torch-neuronx"),
      CPUS,
    ],
    source:
      "PyTorch 2.4 docs, torch.distributed (backends); AWS Neuron docs, torch-neuronx; TPUs are started by torch_xla itself",
  },
  chorale: {
    runsOn: [nvidia(7), CPUS],
    source: "examples/sharded-llama/README.md: WASM on CPUs, NVRTC on NVIDIA",
  },
};

type DeviceKind = Pick<Device, "family" | "name" | "arch">;

function runsOn(engine: EngineName, { family, arch }: DeviceKind): RunsOn | undefined {
  const row = DEVICE_SUPPORT[engine].runsOn.find((item) => item.family === family);
  if (row === undefined || arch === undefined) return row;
  const capability = Number(arch);
  const isTooOld = row.least !== undefined && capability > 0 && capability < row.least;
  return isTooOld || row.archs?.test(arch) === false ? undefined : row;
}

/** Says whether an engine runs on a device. */
export function runsEngine(engine: EngineName, device: DeviceKind): boolean {
  return runsOn(engine, device) !== undefined;
}

/** What an engine runs on, for messages. */
export function devicesOf(engine: EngineName): string {
  return DEVICE_SUPPORT[engine].runsOn.map(({ words }) => words).join(", ");
}

/** Engines of a kind that run on a device. */
export function enginesFor(device: DeviceKind, among: readonly EngineName[] = ENGINE_NAMES): readonly EngineName[] {
  return among.filter((engine) => runsEngine(engine, device));
}

/** `NVIDIA A100 80GB PCIe (compute capability 8.0)`. */
export function deviceText({ family, name, arch }: DeviceKind): string {
  return family === "nvidia-gpu" && arch !== undefined ? `${name} (compute capability ${arch})` : name;
}

/** What must be installed beside the engine for a plan's devices. */
export function installNotes(engine: EngineName, plan: ShardingPlan): readonly string[] {
  const needs = new Set((plan.hardware ?? []).flatMap((device) => runsOn(engine, device)?.needs ?? []));
  return [...needs].map((text) => `needs ${text}`);
}

/** The first device of a plan that an engine does not run on; undefined where it runs on all. */
export function foreignDevice(engine: EngineName, hardware: readonly PlanDevices[]): PlanDevices | undefined {
  return hardware.find((device) => !runsEngine(engine, device));
}
