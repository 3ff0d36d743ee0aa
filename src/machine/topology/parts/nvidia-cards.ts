/**
 * NVIDIA's PCIe cards that people own, in rows: GeForce, RTX workstation cards, older data-centre cards, and Hopper for
 * China. Dense peaks from the architecture white papers and data sheets; GeForce with f32 accumulation, which halves them.
 */
import { MIB, type Part } from "./part.ts";

/** Dense TFLOP/s of f32, of 16-bit floats, of FP8 and of int8; 0 for what the card does not have. */
type Tflops = readonly [f32: number, half: number, f8: number, i8: number];
/** `f64` where it is more than a fraction of f32. */
type Row = readonly [
  key: string,
  name: string,
  memoryMiB: number,
  GBps: number,
  tflops: Tflops,
  watts: number,
  match: RegExp,
  more?: { readonly f64: number },
];

function cards(arch: string, rows: readonly Row[]): Part[] {
  return rows.map(([key, name, memoryMiB, memoryBandwidthGBps, [f32, half, f8, i8], powerLimitWatts, match, more]) => ({
    family: "nvidia-gpu",
    vendor: "NVIDIA",
    key,
    name,
    memoryBytes: memoryMiB * MIB,
    memoryBandwidthGBps,
    peakTflops: {
      ...more,
      f32,
      ...(half > 0 && { f16: half }),
      ...(half > 0 && Number(arch) >= 8 && { bf16: half }),
      ...(f8 > 0 && { f8e4m3: f8, f8e5m2: f8 }),
      ...(i8 > 0 && { i8 }),
    },
    arch,
    powerLimitWatts,
    match,
    source: `NVIDIA ${name.replace(/^NVIDIA /, "")} data sheet`,
  }));
}

export const NVIDIA_CARDS: readonly Part[] = [
  ...cards("12.0", [
    [
      "rtx-pro-6000",
      "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
      97_887,
      1792,
      [125, 503.8, 1007.6, 1007.6],
      600,
      /RTX PRO 6000 Blackwell(?! Server)/,
    ],
    [
      "rtx-pro-6000-server",
      "NVIDIA RTX PRO 6000 Blackwell Server Edition",
      97_887,
      1597,
      [120, 503.8, 1007.6, 1007.6],
      600,
      /RTX PRO 6000 Blackwell Server/,
    ],
    [
      "rtx-pro-5000",
      "NVIDIA RTX PRO 5000 Blackwell",
      49_140,
      1344,
      [73.7, 294, 588, 588],
      300,
      /RTX PRO 5000 Blackwell/,
    ],
    [
      "rtx-pro-4500",
      "NVIDIA RTX PRO 4500 Blackwell",
      32_623,
      896,
      [54.9, 220, 439, 439],
      200,
      /RTX PRO 4500 Blackwell/,
    ],
    ["rtx5080", "NVIDIA GeForce RTX 5080", 16_303, 960, [56.3, 112.6, 225, 450], 360, /RTX 5080(?! Laptop)/],
    ["rtx5070ti", "NVIDIA GeForce RTX 5070 Ti", 16_303, 896, [43.9, 87.9, 175.8, 351.5], 300, /RTX 5070 Ti(?! Laptop)/],
    ["rtx5070", "NVIDIA GeForce RTX 5070", 12_227, 672, [30.9, 61.7, 123.5, 246.9], 250, /RTX 5070(?! (Ti|Laptop))/],
    ["rtx5060ti", "NVIDIA GeForce RTX 5060 Ti", 16_311, 448, [23.7, 47.4, 94.9, 189.7], 180, /RTX 5060 Ti(?! Laptop)/],
  ]),
  ...cards("8.9", [
    ["rtx6000-ada", "NVIDIA RTX 6000 Ada Generation", 49_140, 960, [91.1, 364, 728, 728], 300, /RTX 6000 Ada/],
    ["rtx5000-ada", "NVIDIA RTX 5000 Ada Generation", 32_760, 576, [65.3, 261, 522, 522], 250, /RTX 5000 Ada/],
    ["rtx4500-ada", "NVIDIA RTX 4500 Ada Generation", 24_570, 432, [39.6, 158.7, 317, 317], 210, /RTX 4500 Ada/],
    [
      "rtx4000-ada",
      "NVIDIA RTX 4000 Ada Generation",
      20_475,
      360,
      [26.7, 107, 213.6, 213.6],
      130,
      /RTX 4000 (SFF )?Ada/,
    ],
    ["rtx4080s", "NVIDIA GeForce RTX 4080 SUPER", 16_376, 736, [52.2, 104.4, 208.9, 418], 320, /RTX 4080 SUPER/],
    ["rtx4080", "NVIDIA GeForce RTX 4080", 16_376, 716.8, [48.7, 97.5, 195, 390], 320, /RTX 4080(?! (SUPER|Laptop))/],
    [
      "rtx4070ti-super",
      "NVIDIA GeForce RTX 4070 Ti SUPER",
      16_376,
      672,
      [44.1, 88.2, 176.4, 353],
      285,
      /RTX 4070 Ti SUPER/,
    ],
    ["rtx4070ti", "NVIDIA GeForce RTX 4070 Ti", 12_282, 504, [40.1, 80.2, 160.4, 320.8], 285, /RTX 4070 Ti(?! SUPER)/],
    ["rtx4070", "NVIDIA GeForce RTX 4070", 12_282, 504, [29.1, 58.3, 116.6, 233.2], 200, /RTX 4070(?! (Ti|Laptop))/],
    ["rtx4060ti", "NVIDIA GeForce RTX 4060 Ti", 16_380, 288, [22.1, 44.1, 88.2, 176.5], 165, /RTX 4060 Ti/],
    ["l20", "NVIDIA L20", 46_068, 864, [59.8, 119.5, 239, 239], 275, /\bL20\b/],
  ]),
  ...cards("8.6", [
    ["rtx3090ti", "NVIDIA GeForce RTX 3090 Ti", 24_564, 1008, [40, 80, 0, 320], 450, /RTX 3090 Ti/],
    ["rtx3080ti", "NVIDIA GeForce RTX 3080 Ti", 12_288, 912, [34.1, 68, 0, 273], 350, /RTX 3080 Ti(?! Laptop)/],
    ["rtx3080", "NVIDIA GeForce RTX 3080", 10_240, 760, [29.8, 59.5, 0, 238], 320, /RTX 3080(?! (Ti|Laptop))/],
    ["rtx3070", "NVIDIA GeForce RTX 3070", 8192, 448, [20.3, 40.6, 0, 162.6], 220, /RTX 3070(?! (Ti|Laptop))/],
    ["rtx3060", "NVIDIA GeForce RTX 3060", 12_288, 360, [12.7, 25.5, 0, 101.9], 170, /RTX 3060(?! (Ti|Laptop))/],
    ["a6000", "NVIDIA RTX A6000", 49_140, 768, [38.7, 154.8, 0, 309.7], 300, /RTX A6000/],
    ["a5000", "NVIDIA RTX A5000", 24_564, 768, [27.8, 111.1, 0, 222.2], 230, /RTX A5000/],
    ["a4000", "NVIDIA RTX A4000", 16_376, 448, [19.2, 76.7, 0, 153.4], 140, /RTX A4000/],
    ["a40", "NVIDIA A40", 46_068, 696, [37.4, 149.7, 0, 299.3], 300, /\bA40\b/],
    ["a2", "NVIDIA A2", 15_356, 200, [4.5, 18, 0, 36], 60, /\bA2\b/],
  ]),
  ...cards("7.5", [
    ["rtx2080ti", "NVIDIA GeForce RTX 2080 Ti", 11_264, 616, [13.4, 53.8, 0, 215.2], 250, /RTX 2080 Ti/],
    ["titan-rtx", "NVIDIA TITAN RTX", 24_576, 672, [16.3, 130.5, 0, 261], 280, /TITAN RTX/],
    ["rtx8000", "Quadro RTX 8000", 46_080, 672, [16.3, 130.5, 0, 261], 260, /Quadro RTX 8000/],
  ]),
  ...cards("6.0", [["p100", "Tesla P100-PCIE-16GB", 16_384, 732, [9.3, 18.7, 0, 0], 250, /\bP100\b/, { f64: 4.7 }]]),
  ...cards("6.1", [["p40", "Tesla P40", 24_576, 346, [11.8, 0, 0, 47], 250, /\bP40\b/]]),
  ...cards("9.0", [
    ["h20", "NVIDIA H20", 97_871, 4000, [44, 148, 296, 296], 500, /\bH20\b/],
    ["h800", "NVIDIA H800", 81_559, 3350, [67, 989.4, 1978.9, 1978.9], 700, /\bH800\b/],
  ]),
  ...cards("8.0", [
    ["a800", "NVIDIA A800-SXM4-80GB", 81_920, 2039, [19.5, 312, 0, 624], 400, /\bA800\b/],
    ["a100-40-pcie", "NVIDIA A100-PCIE-40GB", 40_960, 1555, [19.5, 312, 0, 624], 250, /A100-PCIE-40GB/, { f64: 19.5 }],
  ]),
];
