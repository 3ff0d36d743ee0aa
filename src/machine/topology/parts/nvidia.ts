/** NVIDIA's GPUs for servers: memory as the driver reports it where that is known. Narrower patterns stand first. */
import { cards } from "./nvidia-cards.ts";
import { MIB, type Part, partsOf, type Tflops } from "./part.ts";

const HOPPER: Tflops = [67, 989.4, 1978.9, 1978.9];
const HOPPER_NVL: Tflops = [60, 835.5, 1670.5, 1670.5];
const A100: Tflops = [19.5, 312, 0, 624];
const GRACE = "GH200 Grace Hopper Superchip";
const HALVED = " (sparse figures halved)";
const EIGHTH = " specifications, an eighth of the board (sparse figures halved)";
const SEEN = "; memory as nvidia-smi reports it";
const F32 = "GPU Architecture white paper (f32 accumulation)";

export const NVIDIA_PARTS: readonly Part[] = [
  ...cards("10.3", [
    [
      "gb300",
      "GB300",
      284_208,
      8000,
      [80, 2500, 5000, 0],
      1400,
      /\bGB300\b/,
      { f64: 1.3, of: "GB300 NVL72", note: HALVED },
    ],
    [
      "b300",
      "B300 SXM6 AC",
      275_040,
      8000,
      [75, 2250, 4500, 0],
      1100,
      /\bB300\b/,
      { f64: 1.25, source: `HGX B300${EIGHTH}` },
    ],
  ]),
  ...cards("10.0", [
    [
      "gb200",
      "GB200",
      189_471,
      8000,
      [80, 2500, 5000, 5000],
      1200,
      /\bGB200\b/,
      { f64: 40, of: "GB200 NVL72", note: HALVED },
    ],
    ["b200", "B200", 183_359, 8000, [75, 2250, 4500, 4500], 1000, /\bB200\b/, { f64: 37, source: `HGX B200${EIGHTH}` }],
  ]),
  ...cards("9.0", [
    ["gh200-144", "GH200 144G HBM3e", 147_456, 4900, HOPPER, 0, /\bGH200 (144|141)/, { f64: 67, of: GRACE }],
    ["gh200-96", "GH200 480GB", 97_871, 4000, HOPPER, 0, /\bGH200\b/, { f64: 67, of: GRACE }],
    ["h200-nvl", "H200 NVL", 143_771, 4800, HOPPER_NVL, 600, /\bH200 NVL\b/, { f64: 60, of: "H200" }],
    ["h200", "H200", 143_771, 4800, HOPPER, 700, /\bH200\b/, { f64: 67, note: SEEN }],
    [
      "h100-pcie",
      "H100 PCIe",
      81_559,
      2039,
      [51.2, 756.4, 1512.9, 1512.9],
      350,
      /\bH100 PCIe\b/,
      { f64: 51.2, source: "H100 Tensor Core GPU Architecture white paper, table 2" },
    ],
    ["h100-nvl", "H100 NVL", 95_830, 3900, HOPPER_NVL, 400, /\bH100 NVL\b/, { f64: 60, of: "H100" }],
    ["h100", "H100 80GB HBM3", 81_559, 3350, HOPPER, 700, /\bH100\b/, { f64: 67, of: "H100", note: SEEN }],
  ]),
  ...cards("8.0", [
    [
      "a100-40",
      "A100-SXM4-40GB",
      40_960,
      1555,
      A100,
      400,
      /\bA100\b.*40GB/,
      { f64: 19.5, source: "A100 Tensor Core GPU Architecture white paper" },
    ],
    ["a100-80-pcie", "A100 80GB PCIe", 81_920, 1935, A100, 300, /\bA100 80GB PCIe\b/, { f64: 19.5, of: "A100 80GB" }],
    ["a100-80", "A100-SXM4-80GB", 81_920, 2039, A100, 400, /\bA100\b/, { f64: 19.5, of: "A100 80GB" }],
    ["a30", "A30", 24_576, 933, [10.3, 165, 0, 330], 165, /\bA30\b/, { f64: 10.3 }],
  ]),
  ...cards("8.6", [
    ["a10g", "A10G", 23_028, 600, [31.5, 70, 0, 140], 300, /\bA10G\b/, { note: ` (AWS G5)${SEEN}` }],
    ["a10", "A10", 23_028, 600, [31.2, 125, 0, 250], 150, /\bA10\b/],
  ]),
  ...cards("8.9", [
    ["l40s", "L40S", 46_068, 864, [91.6, 362, 733, 733], 350, /\bL40S\b/, { note: SEEN }],
    ["l40", "L40", 46_068, 864, [90.5, 181, 362, 362], 300, /\bL40\b/],
    ["l4", "L4", 23_034, 300, [30.3, 121, 242.5, 242.5], 72, /\bL4\b/, { note: SEEN }],
  ]),
  ...cards("7.5", [["t4", "Tesla T4", 15_360, 320, [8.1, 65, 0, 130], 70, /\bT4\b/, { of: "T4" }]]),
  ...cards("7.0", [
    [
      "v100-32",
      "Tesla V100-SXM2-32GB",
      32_768,
      900,
      [15.7, 125, 0, 0],
      300,
      /\bV100-SXM[23]?-32GB/,
      { f64: 7.8, of: "V100" },
    ],
    [
      "v100-16",
      "Tesla V100-SXM2-16GB",
      16_384,
      900,
      [15.7, 125, 0, 0],
      300,
      /\bV100-SXM[23]?-16GB/,
      { f64: 7.8, of: "V100" },
    ],
    [
      "v100-pcie",
      "Tesla V100-PCIE-16GB",
      16_384,
      900,
      [14, 112, 0, 0],
      250,
      /\bV100-PCIE-16GB/,
      { f64: 7, of: "V100" },
    ],
  ]),
  ...cards("12.0", [
    [
      "rtx5090",
      "GeForce RTX 5090",
      32_607,
      1792,
      [104.8, 209.5, 419, 838],
      575,
      /\bRTX 5090(?! (D|Laptop))\b/,
      { source: `RTX Blackwell ${F32}` },
    ],
  ]),
  ...cards("8.9", [
    [
      "rtx4090",
      "GeForce RTX 4090",
      24_564,
      1008,
      [82.6, 165.2, 330.3, 660.6],
      450,
      /\bRTX 4090(?! (D|Laptop))\b/,
      { source: `Ada ${F32}` },
    ],
  ]),
  ...cards("8.6", [
    [
      "rtx3090",
      "GeForce RTX 3090",
      24_576,
      936,
      [35.6, 71, 0, 284],
      350,
      /\bRTX 3090(?! Ti)\b/,
      { source: `Ampere GA102 ${F32}` },
    ],
  ]),
  ...partsOf({ family: "nvidia-gpu", vendor: "NVIDIA" }, [
    {
      key: "gb10",
      name: "NVIDIA GB10",
      memoryBytes: 124_611 * MIB,
      memoryBandwidthGBps: 273,
      peakTflops: { f16: 125, bf16: 125, f8e4m3: 250, f8e5m2: 250 },
      arch: "12.1",
      unifiedMemory: true,
      match: /\bGB10\b/,
      source:
        "NVIDIA DGX Spark data sheet: 1 PFLOP sparse FP4, hence 1/4 of it sparse or 1/8 dense in 16 bits; of its 128 GB CUDA reports 121.69 GiB",
    },
  ]),
];
