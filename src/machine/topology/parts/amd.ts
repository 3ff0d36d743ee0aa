/**
 * AMD's GPUs, in rows: Instinct, Radeon PRO and Radeon. Peaks of 16-bit floats are those of the matrix or packed units, dense, as
 * AMD's product pages give them. Narrower patterns stand first.
 */
import { GIB, type Part, peaksOf, type Tflops } from "./part.ts";

/** What does not follow from the rest of a row. */
interface More {
  readonly f64?: number;
  /** Where it is not f16's. */
  readonly bf16?: number;
  /** What says so, behind the part's name; its specifications by default. */
  readonly source?: string;
}
type Row = readonly [
  key: string,
  name: string,
  arch: string,
  memoryGiB: number,
  GBps: number,
  tflops: Tflops,
  watts: number,
  match: RegExp,
  more?: More,
];

/** CDNA and RDNA 3 have bf16, RDNA 2 and Vega do not. */
const hasBf16 = (arch: string) => /^gfx(908|90a|94|95|11|12)/.test(arch);
const SHEET = { source: "data sheet" };
/** Each of the two dies of an MI250 is a device. */
const DIE = "data sheet, halved: each of its two dies is a device";
const MI300: Tflops = [163.4, 1307.4, 2614.9, 2614.9];

const ROWS: readonly Row[] = [
  [
    "mi355x",
    "AMD Instinct MI355X",
    "gfx950",
    288,
    8000,
    [157.3, 2516.6, 5033.2, 5033.2],
    1400,
    /MI355X/,
    { ...SHEET, f64: 78.6 },
  ],
  ["mi325x", "AMD Instinct MI325X", "gfx942", 256, 6000, MI300, 1000, /MI325X/, { ...SHEET, f64: 163.4 }],
  ["mi300x", "AMD Instinct MI300X", "gfx942", 192, 5300, MI300, 750, /MI300X/, { ...SHEET, f64: 163.4 }],
  [
    "mi250x",
    "AMD Instinct MI250X (one die)",
    "gfx90a",
    64,
    1638.4,
    [47.9, 191.5, 0, 191.5],
    560,
    /MI250X/,
    { source: DIE, f64: 47.9 },
  ],
  [
    "mi250",
    "AMD Instinct MI250 (one die)",
    "gfx90a",
    64,
    1638.4,
    [45.3, 181, 0, 181],
    560,
    /MI250\b/,
    { source: DIE, f64: 45.3 },
  ],
  ["mi210", "AMD Instinct MI210", "gfx90a", 64, 1638.4, [45.3, 181, 0, 181], 300, /MI210/, { ...SHEET, f64: 45.3 }],
  [
    "mi100",
    "AMD Instinct MI100",
    "gfx908",
    32,
    1228.8,
    [23.1, 184.6, 0, 184.6],
    300,
    /MI100\b/,
    { ...SHEET, f64: 11.5, bf16: 92.3 },
  ],
  ["pro-w7900", "AMD Radeon PRO W7900", "gfx1100", 48, 864, [61.3, 122.6, 0, 122.6], 295, /PRO W7900/, SHEET],
  ["rx7900xtx", "AMD Radeon RX 7900 XTX", "gfx1100", 24, 960, [61.4, 122.8, 0, 122.8], 355, /RX 7900 XTX/],
  ["rx7900xt", "AMD Radeon RX 7900 XT", "gfx1100", 20, 800, [51.6, 103, 0, 103], 315, /RX 7900 XT\b/],
  ["rx9070xt", "AMD Radeon RX 9070 XT", "gfx1201", 16, 640, [48.7, 195, 389, 389], 304, /RX 9070 XT/],
  ["mi50-32", "AMD Instinct MI50 32GB", "gfx906", 32, 1024, [13.3, 26.5, 0, 53], 300, /MI50 32/],
  ["mi50", "AMD Instinct MI50", "gfx906", 16, 1024, [13.3, 26.5, 0, 53], 300, /MI50\b/],
  ["mi60", "AMD Instinct MI60", "gfx906", 32, 1024, [14.7, 29.5, 0, 59], 300, /MI60\b/],
  ["radeon-vii", "AMD Radeon VII", "gfx906", 16, 1024, [13.4, 26.9, 0, 53.8], 300, /Radeon VII/],
  ["mi300a", "AMD Instinct MI300A", "gfx942", 128, 5300, [122.6, 980.6, 1961.2, 1961.2], 760, /MI300A/],
  ["mi350x", "AMD Instinct MI350X", "gfx950", 288, 8000, [144.2, 2306.9, 4613.7, 4613.7], 1000, /MI350X/],
  ["pro-w7800", "AMD Radeon PRO W7800", "gfx1100", 32, 576, [45.2, 90.5, 0, 90.5], 260, /PRO W7800(?! 48)/],
  ["pro-w7800-48", "AMD Radeon PRO W7800 48GB", "gfx1100", 48, 864, [45.2, 90.5, 0, 90.5], 281, /PRO W7800 48/],
  ["pro-w6800", "AMD Radeon PRO W6800", "gfx1030", 32, 512, [17.8, 35.7, 0, 71.3], 250, /PRO W6800/],
  ["r9700", "AMD Radeon AI PRO R9700", "gfx1201", 32, 640, [47.8, 191, 383, 383], 300, /AI PRO R9700/],
  ["rx9070", "AMD Radeon RX 9070", "gfx1201", 16, 640, [36.1, 145, 289, 289], 220, /RX 9070(?! XT)/],
  ["rx9060xt", "AMD Radeon RX 9060 XT", "gfx1200", 16, 322, [25.6, 103, 205, 205], 160, /RX 9060 XT/],
  ["rx7900gre", "AMD Radeon RX 7900 GRE", "gfx1100", 16, 576, [46, 92, 0, 92], 260, /RX 7900 GRE/],
  ["rx7800xt", "AMD Radeon RX 7800 XT", "gfx1101", 16, 624, [37.3, 74.7, 0, 74.7], 263, /RX 7800 XT/],
  ["rx7700xt", "AMD Radeon RX 7700 XT", "gfx1101", 12, 432, [35.2, 70.3, 0, 70.3], 245, /RX 7700 XT/],
  ["rx7600xt", "AMD Radeon RX 7600 XT", "gfx1102", 16, 288, [22.6, 45.1, 0, 45.1], 190, /RX 7600 XT/],
  ["rx7600", "AMD Radeon RX 7600", "gfx1102", 8, 288, [21.8, 43.5, 0, 43.5], 165, /RX 7600(?! XT)/],
  ["rx6950xt", "AMD Radeon RX 6950 XT", "gfx1030", 16, 576, [23.7, 47.3, 0, 94.6], 335, /RX 6950 XT/],
  ["rx6900xt", "AMD Radeon RX 6900 XT", "gfx1030", 16, 512, [23, 46.1, 0, 92.2], 300, /RX 6900 XT/],
  ["rx6800xt", "AMD Radeon RX 6800 XT", "gfx1030", 16, 512, [20.7, 41.5, 0, 82.9], 300, /RX 6800 XT/],
  ["rx6800", "AMD Radeon RX 6800", "gfx1030", 16, 512, [16.2, 32.3, 0, 64.7], 250, /RX 6800(?! XT)/],
  ["rx6750xt", "AMD Radeon RX 6750 XT", "gfx1031", 12, 432, [13.3, 26.6, 0, 53.2], 250, /RX 6750 XT/],
  ["rx6700xt", "AMD Radeon RX 6700 XT", "gfx1031", 12, 384, [13.2, 26.4, 0, 52.8], 230, /RX 6700 XT/],
  ["rx6650xt", "AMD Radeon RX 6650 XT", "gfx1032", 8, 280, [10.8, 21.6, 0, 43.2], 176, /RX 6650 XT/],
  ["rx6600xt", "AMD Radeon RX 6600 XT", "gfx1032", 8, 256, [10.6, 21.2, 0, 42.4], 160, /RX 6600 XT/],
  ["rx6600", "AMD Radeon RX 6600", "gfx1032", 8, 224, [8.9, 17.9, 0, 35.7], 132, /RX 6600(?! XT)/],
  ["rx5700xt", "AMD Radeon RX 5700 XT", "gfx1010", 8, 448, [9.8, 19.5, 0, 0], 225, /RX 5700 XT/],
  ["rx5700", "AMD Radeon RX 5700", "gfx1010", 8, 448, [7.9, 15.9, 0, 0], 180, /RX 5700(?! XT)/],
  ["vega64", "AMD Radeon RX Vega 64", "gfx900", 8, 484, [12.7, 25.3, 0, 0], 295, /RX Vega 64/],
  ["vega56", "AMD Radeon RX Vega 56", "gfx900", 8, 410, [10.5, 21.1, 0, 0], 210, /RX Vega 56/],
  // Polaris has no faster 16-bit floats.
  ["rx590", "AMD Radeon RX 590", "gfx803", 8, 256, [7.1, 7.1, 0, 0], 225, /RX 590/],
  ["rx580", "AMD Radeon RX 580", "gfx803", 8, 256, [6.2, 6.2, 0, 0], 185, /RX 580/],
  ["rx570", "AMD Radeon RX 570", "gfx803", 8, 224, [5.1, 5.1, 0, 0], 150, /RX 570/],
];

export const AMD_PARTS: readonly Part[] = ROWS.map(
  ([key, name, arch, memoryGiB, memoryBandwidthGBps, tflops, powerLimitWatts, match, more = {}]) => ({
    family: "amd-gpu",
    vendor: "AMD",
    key,
    name,
    memoryBytes: memoryGiB * GIB,
    memoryBandwidthGBps,
    peakTflops: peaksOf(tflops, hasBf16(arch), more),
    arch,
    powerLimitWatts,
    match,
    source: `${name.replace(" (one die)", "")} ${more.source ?? "specifications"}`,
  }),
);
