/**
 * Every number of the cost model that is not a vendor's peak: achievable fractions, fixed costs, protocol figures. Each
 * says where it comes from. `bench/results/planner-calibration.md` holds the comparison with measurements.
 */
import { wordTable } from "../../core/index.ts";
import type { Family } from "../../machine/topology/index.ts";

export interface FamilyRates {
  /** Fraction of the peak memory bandwidth that streaming weights reaches. */
  readonly memoryBandwidth: number;
  /** Fraction of the dense peak that large matrix products reach. */
  readonly matmul: number;
  /** Fraction of the dense peak that the attention kernel reaches in prefill. */
  readonly attention: number;
  /** Fraction of the peak memory bandwidth that reading the KV cache reaches. */
  readonly kvBandwidth: number;
  /** What one layer costs beside its bytes and FLOPs: its small kernels and the gaps between them, us. */
  readonly layerOverheadUs: number;
  /** What one step costs beside its layers: sampling and launching, us. */
  readonly stepOverheadUs: number;
}

/**
 * NVIDIA, fitted to PyTorch 2.11 on an H200 with Llama shapes of 1 B and 8 B on one GPU and of 8 B on four, bf16, decode
 * steps replayed as CUDA graphs (bench/peers/llama_torch.py); the other shapes are the check. Peaks beside them on the
 * same chip: a copy at 4.3 of 4.8 TB/s, an 8192-cubed product at 788 of 989 TFLOP/s. Layer overhead is that of unfused
 * PyTorch, some 30 small kernels of 2 us; engines with fused kernels have about half of it.
 */
const GPU: FamilyRates = {
  memoryBandwidth: 0.82,
  matmul: 0.65,
  attention: 0.4,
  kvBandwidth: 0.72,
  layerOverheadUs: 58,
  stepOverheadUs: 20,
};
/** Accelerators whose compilers fuse a layer into few programs; utilisations as MLPerf submissions show them. */
const ASIC: FamilyRates = {
  ...GPU,
  memoryBandwidth: 0.75,
  matmul: 0.6,
  attention: 0.35,
  kvBandwidth: 0.55,
  layerOverheadUs: 20,
};
/** Measured with STREAM-like loops and a WASM SIMD product: about half of either peak is what one process gets. */
const CPU: FamilyRates = {
  memoryBandwidth: 0.6,
  matmul: 0.3,
  attention: 0.2,
  kvBandwidth: 0.5,
  layerOverheadUs: 10,
  stepOverheadUs: 50,
};
const SMALL_NPU: FamilyRates = { ...CPU, memoryBandwidth: 0.5, matmul: 0.4, layerOverheadUs: 100 };

export const ACHIEVABLE: Readonly<Record<Family, FamilyRates>> = {
  cpu: CPU,
  "nvidia-gpu": GPU,
  "amd-gpu": { ...GPU, memoryBandwidth: 0.7, matmul: 0.5, attention: 0.3, layerOverheadUs: 80 },
  "intel-gpu": { ...GPU, memoryBandwidth: 0.7, matmul: 0.5, attention: 0.3, layerOverheadUs: 90 },
  "apple-gpu": { ...GPU, memoryBandwidth: 0.75, matmul: 0.6, layerOverheadUs: 100 },
  "apple-npu": SMALL_NPU,
  vulkan: { ...GPU, memoryBandwidth: 0.6, matmul: 0.3, attention: 0.2, layerOverheadUs: 80 },
  "intel-npu": SMALL_NPU,
  "amd-xdna": SMALL_NPU,
  tpu: ASIC,
  gaudi: ASIC,
  neuron: ASIC,
  "qualcomm-ai": ASIC,
  cerebras: ASIC,
  graphcore: ASIC,
  groq: ASIC,
  "samsung-npu": SMALL_NPU,
  "mediatek-npu": SMALL_NPU,
  "windows-gpu": { ...GPU, memoryBandwidth: 0.6, matmul: 0.3, attention: 0.2, layerOverheadUs: 120 },
};

/** What is assumed of a device whose part is not known; the plan says so. GB/s and dense TFLOP/s of 16-bit floats. */
export const ASSUMED_RATES: Readonly<Record<Family, { readonly bandwidthGBps: number; readonly tflops: number }>> = {
  cpu: { bandwidthGBps: 20, tflops: 0.1 },
  "nvidia-gpu": { bandwidthGBps: 500, tflops: 60 },
  "amd-gpu": { bandwidthGBps: 500, tflops: 60 },
  "intel-gpu": { bandwidthGBps: 400, tflops: 50 },
  "apple-gpu": { bandwidthGBps: 150, tflops: 8 },
  "apple-npu": { bandwidthGBps: 60, tflops: 10 },
  vulkan: { bandwidthGBps: 200, tflops: 10 },
  "intel-npu": { bandwidthGBps: 60, tflops: 5 },
  "amd-xdna": { bandwidthGBps: 60, tflops: 5 },
  tpu: { bandwidthGBps: 800, tflops: 180 },
  gaudi: { bandwidthGBps: 2400, tflops: 400 },
  neuron: { bandwidthGBps: 800, tflops: 90 },
  "qualcomm-ai": { bandwidthGBps: 130, tflops: 90 },
  cerebras: { bandwidthGBps: 20_000, tflops: 1000 },
  graphcore: { bandwidthGBps: 5000, tflops: 60 },
  groq: { bandwidthGBps: 10_000, tflops: 180 },
  "samsung-npu": { bandwidthGBps: 40, tflops: 4 },
  "mediatek-npu": { bandwidthGBps: 40, tflops: 4 },
  "windows-gpu": { bandwidthGBps: 200, tflops: 10 },
};

/**
 * The same of a GPU that shares its processor's memory (integrated graphics): two channels of laptop memory, and what
 * Intel's and AMD's larger integrated GPUs of 2022 to 2025 have.
 */
export const ASSUMED_INTEGRATED_RATES = { bandwidthGBps: 60, tflops: 4 } as const;

/** Apple's GPUs by chip, of its largest variant: TFLOP/s in f32, which f16 does not exceed. Apple does not publish them; cores x 128 lanes x 2 x clock. */
export const APPLE_TFLOPS: Readonly<Record<string, number>> = wordTable({
  "Apple M1": 2.6,
  "Apple M1 Pro": 5.3,
  "Apple M1 Max": 10.6,
  "Apple M1 Ultra": 21.2,
  "Apple M2": 3.6,
  "Apple M2 Pro": 6.8,
  "Apple M2 Max": 13.6,
  "Apple M2 Ultra": 27.2,
  "Apple M3": 4.1,
  "Apple M3 Pro": 7.4,
  "Apple M3 Max": 16.3,
  "Apple M3 Ultra": 28.2,
  "Apple M4": 4.6,
  "Apple M4 Pro": 9.2,
  "Apple M4 Max": 18.4,
  "Apple M5": 5.7,
});

/** CPU: 16 f32 operations a cycle and core at 3 GHz, for a core count that the inventory gives. */
export const CPU_TFLOPS_PER_CORE = 0.05;

/** Times that norms, residuals, rotary embedding and activation move a token's hidden state and MLP columns. Fitted as above. */
export const ELEMENTWISE_PASSES = { hidden: 24, columns: 1.7 } as const;
/** What an optimizer in host memory is updated at: PCIe 4 both ways and a CPU's share of its memory, bytes/s. */
export const HOST_BANDWIDTH = 25e9;

/**
 * Largest number of tokens in one forward pass: vLLM's default max_num_batched_tokens for chunked prefill on data-centre GPUs,
 * and llama.cpp's default --ubatch-size, in which several GPUs take turns.
 */
export const PREFILL_CHUNK_TOKENS = { "llama.cpp": 512, others: 8192 } as const;

/** Memory that a process takes beside the model: driver context, libraries, workspaces, captured graphs. Bytes a rank. */
export const FRAMEWORK_RESERVE_BYTES = {
  accelerator: 1024 ** 3,
  "llama.cpp": 512 * 1024 ** 2,
  cpu: 64 * 1024 ** 2,
} as const;
/** Buffers of one communicator: NCCL holds channels of 4 MiB (NCCL_BUFFSIZE) for each peer direction. Bytes a rank and axis. */
export const COMMUNICATOR_BYTES = { accelerator: 256 * 1024 ** 2, cpu: 4 * 1024 ** 2 } as const;
/** Share of weights, KV cache and activations that allocators lose to rounding and fragmentation; caches are one pool. */
export const FRAGMENTATION = { inference: 0.01, training: 0.03 } as const;
