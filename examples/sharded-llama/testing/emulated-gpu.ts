/**
 * Kernels for the stand-in of a GPU (test/fixtures/native): the source of gpu/kernels.ts itself, compiled for the host,
 * run by emulator.hpp. What the device is asked to compute is computed, by the same lines.
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { buildFakeGpu } from "../../../test/helpers/fake-gpu.ts";
import { KERNEL_NAMES, source, WEIGHT_MACRO } from "../gpu/kernels.ts";

function hostSource(): string {
  const text = source
    .replaceAll('extern "C" ', "")
    .replace("extern __shared__ float shared[];", "float* shared = emulator::dynamic;")
    .replace(/asm\("cvt\.f32\.f16[^;]*;[^;]*;/, "_Float16 h; memcpy(&h, &w, 2); f = (float)h;")
    .replace(/asm\("cvt\.rn\.f16\.f32[^;]*;[^;]*;/, "_Float16 half = (_Float16)f; memcpy(&w[i], &half, 2);");
  const variants = Object.values(WEIGHT_MACRO).map((weight) => {
    const entries = KERNEL_NAMES.map((name) => `emulator::kernels["${weight}${name}"] = emulator::wrap(${name});`);
    return `#define WEIGHT ${weight}
namespace weight${weight} {
${text}
struct Register { Register() { ${entries.join(" ")} } } entries;
}
#undef WEIGHT
#undef LANE_VALUES
`;
  });
  return variants.join("\n");
}

/**
 * Builds the stand-in with the kernels in it, and makes this process use it.
 * @returns false when there is no C++ compiler
 */
export function useEmulatedGpu(): boolean {
  const folder = fileURLToPath(new URL("../../../.cache/native", import.meta.url));
  mkdirSync(folder, { recursive: true });
  const emulator = fileURLToPath(new URL("./emulator.hpp", import.meta.url));
  const text = `#include "${emulator}"
${hostSource()}
void* emulatedKernel(const std::string& name) {
  const auto found = emulator::kernels.find(name);
  return found == emulator::kernels.end() ? nullptr : &found->second;
}
std::function<void()> emulatedLaunch(void* kernel, void** params, unsigned gx, unsigned gy, unsigned bx, unsigned sharedBytes) {
  const auto bound = (*(emulator::Kernel*)kernel)(params);
  return [=] { emulator::run({gx, gy, 1}, {bx, 1, 1}, sharedBytes, bound); };
}
`;
  // The name holds the content: the stand-in is built anew when a kernel changes.
  let hash = 0;
  for (let i = 0; i < text.length; i++) hash = (Math.imul(hash, 31) + text.charCodeAt(i)) | 0;
  const file = `${folder}/llama-kernels-${(hash >>> 0).toString(16)}.cpp`;
  writeFileSync(file, text);
  const path = buildFakeGpu({ kernels: file });
  if (path === undefined) return false;
  for (const name of ["CUDA", "NCCL", "NVRTC"]) process.env[`CHORALE_${name}_LIBRARY`] = path;
  return true;
}
