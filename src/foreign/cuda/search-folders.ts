/** Where NVIDIA's libraries are looked for, after the loader's own places: one list for the driver, NVML, NVRTC and NCCL. */

/** Folders into which the driver's libraries are installed, or mounted into containers. */
export const DRIVER_FOLDERS: readonly string[] = [
  "/usr/lib/x86_64-linux-gnu",
  "/usr/lib/aarch64-linux-gnu",
  "/usr/lib64",
  "/usr/lib",
  "/usr/local/nvidia/lib64",
  "/usr/lib/wsl/lib",
  "/run/opengl-driver/lib",
];

/** The toolkit's folder unless CUDA_HOME or CUDA_PATH names another. */
export const DEFAULT_TOOLKIT = "/usr/local/cuda";

/** Folders of the toolkits that the environment names, then of the one in its usual place. */
export function toolkitFolders(env: NodeJS.ProcessEnv = process.env): readonly string[] {
  const roots = [env["CUDA_HOME"], env["CUDA_PATH"], DEFAULT_TOOLKIT].filter(
    (root) => root !== undefined && root !== "",
  );
  return [...new Set(roots)].flatMap((root) => [
    `${root}/lib64`,
    `${root}/targets/x86_64-linux/lib`,
    `${root}/targets/sbsa-linux/lib`,
  ]);
}
