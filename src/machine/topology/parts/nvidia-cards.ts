/**
 * NVIDIA's PCIe cards that people own, in rows: GeForce of ten years, RTX workstation cards, older data-centre cards, and Hopper
 * for China. Dense peaks from the architecture white papers and data sheets; GeForce with f32 accumulation, which halves them.
 */
import { MIB, type Part, peaksOf, type Tflops } from "./part.ts";

/** What does not follow from the rest of a row. The source is a data sheet, `of` the product by another name, unless it is `source`. */
interface More {
  /** Where it is more than a fraction of f32. */
  readonly f64?: number;
  readonly of?: string;
  /** Behind the name of the data sheet. */
  readonly note?: string;
  readonly source?: string;
}
/** The power limit is 0 where none is published. */
type Row = readonly [
  key: string,
  /** Without the vendor's. */
  name: string,
  memoryMiB: number,
  GBps: number,
  tflops: Tflops,
  watts: number,
  match: RegExp,
  more?: More,
];

/** NVIDIA's parts of a compute capability. */
export function cards(arch: string, rows: readonly Row[]): Part[] {
  return rows.map(([key, name, memoryMiB, memoryBandwidthGBps, tflops, powerLimitWatts, match, more = {}]) => ({
    family: "nvidia-gpu",
    vendor: "NVIDIA",
    key,
    name: /^(Tesla|Quadro)/.test(name) ? name : `NVIDIA ${name}`,
    memoryBytes: memoryMiB * MIB,
    memoryBandwidthGBps,
    peakTflops: peaksOf(tflops, Number(arch) >= 8, more),
    arch,
    ...(powerLimitWatts > 0 && { powerLimitWatts }),
    match,
    source: `NVIDIA ${more.source ?? `${more.of ?? name} data sheet${more.note ?? ""}`}`,
  }));
}

export const NVIDIA_CARDS: readonly Part[] = [
  ...cards("12.0", [
    [
      "rtx-pro-6000",
      "RTX PRO 6000 Blackwell Workstation Edition",
      97_887,
      1792,
      [125, 503.8, 1007.6, 1007.6],
      600,
      /RTX PRO 6000 Blackwell(?! (?:Server|Max-Q))/,
    ],
    // Its data sheet: 110 TFLOPS in f32 and 3,511 sparse FP4 TOPS at half the power.
    [
      "rtx-pro-6000-max-q",
      "RTX PRO 6000 Blackwell Max-Q Workstation Edition",
      97_887,
      1792,
      [110, 438.9, 877.8, 877.8],
      300,
      /RTX PRO 6000 Blackwell Max-Q/,
    ],
    [
      "rtx-pro-6000-server",
      "RTX PRO 6000 Blackwell Server Edition",
      97_887,
      1597,
      [120, 503.8, 1007.6, 1007.6],
      600,
      /RTX PRO 6000 Blackwell Server/,
    ],
    ["rtx-pro-5000", "RTX PRO 5000 Blackwell", 49_140, 1344, [73.7, 294, 588, 588], 300, /RTX PRO 5000 Blackwell/],
    ["rtx-pro-4500", "RTX PRO 4500 Blackwell", 32_623, 896, [54.9, 220, 439, 439], 200, /RTX PRO 4500 Blackwell/],
    ["rtx5080", "GeForce RTX 5080", 16_303, 960, [56.3, 112.6, 225, 450], 360, /RTX 5080(?! Laptop)/],
    ["rtx5070ti", "GeForce RTX 5070 Ti", 16_303, 896, [43.9, 87.9, 175.8, 351.5], 300, /RTX 5070 Ti(?! Laptop)/],
    ["rtx5070", "GeForce RTX 5070", 12_227, 672, [30.9, 61.7, 123.5, 246.9], 250, /RTX 5070(?! (Ti|Laptop))/],
    ["rtx-pro-4000", "RTX PRO 4000 Blackwell", 24_467, 672, [46.9, 187, 375, 375], 140, /RTX PRO 4000 Blackwell/],
    ["rtx5090-laptop", "GeForce RTX 5090 Laptop GPU", 24_463, 896, [31.8, 63.5, 127, 254], 175, /RTX 5090 Laptop/],
    ["rtx5080-laptop", "GeForce RTX 5080 Laptop GPU", 16_303, 896, [23, 46.1, 92, 184], 175, /RTX 5080 Laptop/],
    ["rtx5060", "GeForce RTX 5060", 8151, 448, [19.2, 38.4, 76.8, 153.6], 145, /RTX 5060(?! (Ti|Laptop))/],
    ["rtx5050", "GeForce RTX 5050", 8151, 320, [13.2, 26.3, 52.7, 105.4], 130, /RTX 5050(?! Laptop)/],
    ["rtx5060ti-8", "GeForce RTX 5060 Ti 8GB", 8151, 448, [23.7, 47.4, 94.9, 189.7], 180, /RTX 5060 Ti 8/],
    ["rtx5060ti", "GeForce RTX 5060 Ti", 16_311, 448, [23.7, 47.4, 94.9, 189.7], 180, /RTX 5060 Ti(?! Laptop)/],
  ]),
  ...cards("8.9", [
    ["rtx6000-ada", "RTX 6000 Ada Generation", 49_140, 960, [91.1, 364, 728, 728], 300, /RTX 6000 Ada/],
    ["rtx5000-ada", "RTX 5000 Ada Generation", 32_760, 576, [65.3, 261, 522, 522], 250, /RTX 5000 Ada/],
    ["rtx4500-ada", "RTX 4500 Ada Generation", 24_570, 432, [39.6, 158.7, 317, 317], 210, /RTX 4500 Ada/],
    ["rtx4000-ada", "RTX 4000 Ada Generation", 20_475, 360, [26.7, 107, 213.6, 213.6], 130, /RTX 4000 (SFF )?Ada/],
    ["rtx4080s", "GeForce RTX 4080 SUPER", 16_376, 736, [52.2, 104.4, 208.9, 418], 320, /RTX 4080 SUPER/],
    ["rtx4080", "GeForce RTX 4080", 16_376, 716.8, [48.7, 97.5, 195, 390], 320, /RTX 4080(?! (SUPER|Laptop))/],
    ["rtx4070ti-super", "GeForce RTX 4070 Ti SUPER", 16_376, 672, [44.1, 88.2, 176.4, 353], 285, /RTX 4070 Ti SUPER/],
    ["rtx4070ti", "GeForce RTX 4070 Ti", 12_282, 504, [40.1, 80.2, 160.4, 320.8], 285, /RTX 4070 Ti(?! SUPER)/],
    ["rtx4070s", "GeForce RTX 4070 SUPER", 12_282, 504, [35.5, 71, 142, 284], 220, /RTX 4070 SUPER/],
    ["rtx4070", "GeForce RTX 4070", 12_282, 504, [29.1, 58.3, 116.6, 233.2], 200, /RTX 4070(?! (Ti|SUPER|Laptop))/],
    ["rtx4090d", "GeForce RTX 4090 D", 24_564, 1008, [73.5, 147.1, 294, 588], 425, /RTX 4090 D\b/],
    ["rtx4090-laptop", "GeForce RTX 4090 Laptop GPU", 16_376, 576, [33, 66, 132, 264], 150, /RTX 4090 Laptop/],
    ["rtx4080-laptop", "GeForce RTX 4080 Laptop GPU", 12_282, 432, [24.7, 49.5, 99, 198], 150, /RTX 4080 Laptop/],
    ["rtx4070-laptop", "GeForce RTX 4070 Laptop GPU", 8188, 256, [15.6, 31.2, 62.4, 125], 115, /RTX 4070 Laptop/],
    ["rtx4060", "GeForce RTX 4060", 8188, 272, [15.1, 30.2, 60.5, 121], 115, /RTX 4060(?! (Ti|Laptop))/],
    ["rtx4060-laptop", "GeForce RTX 4060 Laptop GPU", 8188, 256, [11.6, 23.2, 46.5, 93], 115, /RTX 4060 Laptop/],
    ["rtx4060ti-8", "GeForce RTX 4060 Ti 8GB", 8188, 288, [22.1, 44.1, 88.2, 176.5], 160, /RTX 4060 Ti 8/],
    ["rtx2000-ada", "RTX 2000 Ada Generation", 16_380, 224, [12, 48, 96, 96], 70, /RTX 2000 Ada/],
    ["rtx4060ti", "GeForce RTX 4060 Ti", 16_380, 288, [22.1, 44.1, 88.2, 176.5], 165, /RTX 4060 Ti/],
    ["l20", "L20", 46_068, 864, [59.8, 119.5, 239, 239], 275, /\bL20\b/],
  ]),
  ...cards("8.6", [
    ["rtx3090ti", "GeForce RTX 3090 Ti", 24_564, 1008, [40, 80, 0, 320], 450, /RTX 3090 Ti/],
    ["rtx3080ti", "GeForce RTX 3080 Ti", 12_288, 912, [34.1, 68, 0, 273], 350, /RTX 3080 Ti(?! Laptop)/],
    ["rtx3080-12", "GeForce RTX 3080 12GB", 12_288, 912, [30.6, 61.3, 0, 245], 350, /RTX 3080 12GB/],
    ["rtx3080", "GeForce RTX 3080", 10_240, 760, [29.8, 59.5, 0, 238], 320, /RTX 3080(?! (Ti|Laptop|12GB))/],
    ["rtx3070", "GeForce RTX 3070", 8192, 448, [20.3, 40.6, 0, 162.6], 220, /RTX 3070(?! (Ti|Laptop))/],
    ["rtx3070ti", "GeForce RTX 3070 Ti", 8192, 608, [21.7, 43.5, 0, 174], 290, /RTX 3070 Ti(?! Laptop)/],
    ["rtx3060ti", "GeForce RTX 3060 Ti", 8192, 448, [16.2, 32.4, 0, 129.6], 200, /RTX 3060 Ti/],
    ["rtx3050", "GeForce RTX 3050", 8192, 224, [9.1, 18.2, 0, 72.8], 130, /RTX 3050(?! (Ti|Laptop|6GB))/],
    ["rtx3060", "GeForce RTX 3060", 12_288, 360, [12.7, 25.5, 0, 101.9], 170, /RTX 3060(?! (Ti|Laptop))/],
    ["a6000", "RTX A6000", 49_140, 768, [38.7, 154.8, 0, 309.7], 300, /RTX A6000/],
    ["a5500", "RTX A5500", 24_564, 768, [34.1, 136.4, 0, 272.8], 230, /RTX A5500/],
    ["a4500", "RTX A4500", 20_470, 640, [23.7, 94.6, 0, 189.2], 200, /RTX A4500/],
    ["a2000", "RTX A2000 12GB", 12_282, 288, [8, 31.9, 0, 63.9], 70, /RTX A2000 12GB/],
    ["a5000", "RTX A5000", 24_564, 768, [27.8, 111.1, 0, 222.2], 230, /RTX A5000/],
    ["a4000", "RTX A4000", 16_376, 448, [19.2, 76.7, 0, 153.4], 140, /RTX A4000/],
    ["a40", "A40", 46_068, 696, [37.4, 149.7, 0, 299.3], 300, /\bA40\b/],
    ["a2", "A2", 15_356, 200, [4.5, 18, 0, 36], 60, /\bA2\b/],
  ]),
  ...cards("7.5", [
    ["rtx2080ti", "GeForce RTX 2080 Ti", 11_264, 616, [13.4, 53.8, 0, 215.2], 250, /RTX 2080 Ti/],
    ["rtx2080s", "GeForce RTX 2080 SUPER", 8192, 496, [11.2, 44.6, 0, 178.4], 250, /RTX 2080 SUPER/],
    ["rtx2080", "GeForce RTX 2080", 8192, 448, [10.1, 40.3, 0, 161.1], 215, /RTX 2080(?! (Ti|SUPER))/],
    ["rtx2070s", "GeForce RTX 2070 SUPER", 8192, 448, [9.1, 36.3, 0, 145], 215, /RTX 2070 SUPER/],
    ["rtx2070", "GeForce RTX 2070", 8192, 448, [7.5, 29.9, 0, 119.4], 175, /RTX 2070(?! SUPER)/],
    ["rtx2060", "GeForce RTX 2060", 6144, 336, [6.5, 25.8, 0, 103.2], 160, /RTX 2060(?! SUPER)/],
    ["rtx2060s", "GeForce RTX 2060 SUPER", 8192, 448, [7.2, 28.7, 0, 114.8], 175, /RTX 2060 SUPER/],
    ["gtx1660", "GeForce GTX 1660", 6144, 192, [5, 10, 0, 20.1], 120, /GTX 1660(?! (Ti|SUPER))/],
    ["gtx1660ti", "GeForce GTX 1660 Ti", 6144, 288, [5.4, 10.9, 0, 21.7], 120, /GTX 1660 Ti/],
    ["gtx1660s", "GeForce GTX 1660 SUPER", 6144, 336, [5, 10, 0, 20.1], 125, /GTX 1660 SUPER/],
    ["gtx1650", "GeForce GTX 1650", 4096, 128, [3, 6, 0, 11.9], 75, /GTX 1650/],
    ["rtx6000-turing", "Quadro RTX 6000", 24_576, 672, [16.3, 130.5, 0, 261], 260, /Quadro RTX 6000/],
    ["rtx5000-turing", "Quadro RTX 5000", 16_384, 448, [11.2, 89.2, 0, 178.4], 230, /Quadro RTX 5000/],
    ["rtx4000-turing", "Quadro RTX 4000", 8192, 416, [7.1, 57, 0, 113.9], 160, /Quadro RTX 4000/],
    ["titan-rtx", "TITAN RTX", 24_576, 672, [16.3, 130.5, 0, 261], 280, /TITAN RTX/],
    ["rtx8000", "Quadro RTX 8000", 46_080, 672, [16.3, 130.5, 0, 261], 260, /Quadro RTX 8000/],
  ]),
  ...cards("6.0", [["p100", "Tesla P100-PCIE-16GB", 16_384, 732, [9.3, 18.7, 0, 0], 250, /\bP100\b/, { f64: 4.7 }]]),
  ...cards("7.0", [["titan-v", "TITAN V", 12_288, 652.8, [14.9, 110, 0, 0], 250, /TITAN V\b/, { f64: 7.4 }]]),
  ...cards("6.1", [
    ["p40", "Tesla P40", 24_576, 346, [11.8, 0, 0, 47], 250, /\bP40\b/],
    ["p4", "Tesla P4", 8192, 192, [5.5, 0, 0, 22], 75, /\bP4\b/],
    ["titan-xp", "TITAN Xp", 12_288, 547.6, [12.1, 0, 0, 48.6], 250, /TITAN Xp/],
    ["gtx1080ti", "GeForce GTX 1080 Ti", 11_264, 484, [11.3, 0, 0, 45.4], 250, /GTX 1080 Ti/],
    ["gtx1080", "GeForce GTX 1080", 8192, 320, [8.9, 0, 0, 35.5], 180, /GTX 1080(?! Ti)/],
    ["gtx1070ti", "GeForce GTX 1070 Ti", 8192, 256, [8.2, 0, 0, 32.7], 180, /GTX 1070 Ti/],
    ["gtx1070", "GeForce GTX 1070", 8192, 256, [6.5, 0, 0, 25.8], 150, /GTX 1070(?! Ti)/],
    ["gtx1060", "GeForce GTX 1060 6GB", 6144, 192, [4.4, 0, 0, 17.5], 120, /GTX 1060 6GB/],
    ["gtx1060-3", "GeForce GTX 1060 3GB", 3072, 192, [3.9, 0, 0, 15.7], 120, /GTX 1060 3GB/],
    ["gtx1050ti", "GeForce GTX 1050 Ti", 4096, 112, [2.1, 0, 0, 8.6], 75, /GTX 1050 Ti/],
  ]),
  // Maxwell multiplies in f32 alone.
  ...cards("5.2", [
    ["m40-24", "Tesla M40 24GB", 24_576, 288, [6.8, 0, 0, 0], 250, /Tesla M40 24GB/],
    ["m40", "Tesla M40", 12_288, 288, [6.8, 0, 0, 0], 250, /Tesla M40(?! 24GB)/],
    ["titan-x-maxwell", "GeForce GTX TITAN X", 12_288, 336.6, [6.6, 0, 0, 0], 250, /GTX TITAN X/],
    ["gtx980ti", "GeForce GTX 980 Ti", 6144, 336.6, [6.1, 0, 0, 0], 250, /GTX 980 Ti/],
    ["gtx980", "GeForce GTX 980", 4096, 224.4, [5, 0, 0, 0], 165, /GTX 980(?! Ti)/],
    // Its last 512 MiB hang on one slow channel: 3.5 GiB are read at 196 GB/s.
    ["gtx970", "GeForce GTX 970", 4096, 196.3, [3.9, 0, 0, 0], 145, /GTX 970/, { note: ", 7 of 8 channels" }],
  ]),
  ...cards("9.0", [
    ["h20", "H20", 97_871, 4000, [44, 148, 296, 296], 500, /\bH20\b(?!-3e)/],
    ["h20-141", "H20-3e", 143_771, 4800, [44, 148, 296, 296], 500, /\bH20-3e\b/],
    ["h800", "H800", 81_559, 3350, [67, 989.4, 1978.9, 1978.9], 700, /\bH800\b/],
  ]),
  ...cards("8.0", [
    ["a800", "A800-SXM4-80GB", 81_920, 2039, [19.5, 312, 0, 624], 400, /\bA800\b/],
    ["a100-40-pcie", "A100-PCIE-40GB", 40_960, 1555, [19.5, 312, 0, 624], 250, /A100-PCIE-40GB/, { f64: 19.5 }],
  ]),
];
