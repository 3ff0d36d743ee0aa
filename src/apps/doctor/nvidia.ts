/**
 * What keeps NVIDIA GPUs and NCCL from working together: versions of driver, kernel module, runtime and NCCL; peer access;
 * NVLinks; compute mode and MIG; Xid errors of the kernel's log; persistence mode. Statuses are cuda.h's CUresult, Xid
 * numbers those of NVIDIA's "XID Errors".
 */
import { DEFAULT_TOOLKIT, DRIVER_FOLDERS } from "../../foreign/cuda/index.ts";
import { isOnBaseboard } from "../../machine/hardware/index.ts";
import type { Check } from "./examined-machine.ts";
import type { Finding } from "./finding.ts";

/** Oldest NCCL that the backend can use: ncclCommInitRankConfig and ncclGetLastError came with it. */
const OLDEST_NCCL = "2.14";

/** Negative when `a` is the older version. */
export function compareVersions(a: string, b: string): number {
  const [x, y] = [a, b].map((text) => text.split(".").map(Number)) as [number[], number[]];
  for (let i = 0; i < Math.max(x.length, y.length); i++) {
    const difference = (x[i] ?? 0) - (y[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

const major = (version: string) => version.split(".")[0] ?? "";

/** The kernel module's version against that of the libcuda which programs load. */
const driverLibrary: Check = async ({ machine: { files } }) => {
  const [module, proc] = await Promise.all([
    files.readText("/sys/module/nvidia/version", 64),
    files.readText("/proc/driver/nvidia/version", 1024),
  ]);
  const kernel = /^(\d+\.[\d.]+)/.exec(module ?? "")?.[1] ?? /Kernel Module.*?\s(\d+\.\d+[\d.]*)/.exec(proc ?? "")?.[1];
  if (kernel === undefined) return [];
  for (const folder of DRIVER_FOLDERS) {
    const real = await files.realPath(`${folder}/libcuda.so.1`);
    const library = /libcuda\.so\.(\d+\.[\d.]+)$/.exec(real ?? "")?.[1];
    if (real === undefined || library === undefined) continue;
    if (library === kernel) return [];
    return {
      code: "DRIVER_LIBRARY_MISMATCH",
      severity: "error",
      message: `The NVIDIA kernel module is ${kernel}, and the driver's library is ${library}.`,
      evidence: [`kernel module: ${kernel}`, `${folder}/libcuda.so.1 -> ${real.split("/").at(-1)}`],
      mend: "The driver was updated while it ran: reboot, or unload and load the nvidia modules. In a container, remove libcuda and libnvidia-* that the image brings along.",
    };
  }
  return [];
};

/** Why cuInit fails, by status. */
const INIT_FAILURES: Readonly<Record<number, Pick<Finding, "code" | "message" | "mend">>> = {
  100: {
    code: "CUDA_SEES_NO_DEVICE",
    message: "CUDA sees no device, although there are GPUs.",
    mend: "Look at CUDA_VISIBLE_DEVICES, and in a container at the devices it was given (--gpus all); the nodes /dev/nvidia* must be there.",
  },
  802: {
    code: "FABRIC_NOT_READY",
    message: "CUDA says that the system is not ready: the NVSwitch fabric has not been set up.",
    mend: "Start the fabric manager of the driver's own version: systemctl start nvidia-fabricmanager.",
  },
  803: {
    code: "DRIVER_LIBRARY_MISMATCH",
    message: "CUDA says that the kernel module and the driver's library are of different versions.",
    mend: "Reboot, or unload and load the nvidia modules; in a container, remove libcuda that the image brings along.",
  },
  804: {
    code: "FORWARD_COMPATIBILITY_REFUSED",
    message: "CUDA's forward-compatibility library was loaded, and this GPU does not support it.",
    mend: "Take the cuda-compat folder out of LD_LIBRARY_PATH, or update the driver.",
  },
};

const cudaInit: Check = ({ facts: { cuda }, gpus }) => {
  if (cuda?.problem === undefined || gpus.length === 0) return [];
  const known = INIT_FAILURES[cuda.initStatus ?? -1] ?? {
    code: "CUDA_INIT_FAILED",
    message: "The CUDA driver does not start.",
    mend: "Look at dmesg for NVRM lines, and whether /dev/nvidiactl and /dev/nvidia-uvm are there (nvidia-modprobe -u -c=0).",
  };
  return { severity: "error", ...known, evidence: [cuda.problem.slice(0, 300)] };
};

/** A newer major version of CUDA needs a newer driver; within one major version, minor versions are compatible (R525 on). */
const runtimeVersions: Check = async ({ inventory, machine, facts, gpus }) => {
  const reported = gpus.map((gpu) => /CUDA ([\d.]+)/.exec(gpu.runtimeVersion ?? "")?.[1]).find((v) => v !== undefined);
  const driver = facts.cuda?.version ?? reported;
  if (driver === undefined) return [];
  const findings: Finding[] = [];
  const home = machine.env["CUDA_HOME"] ?? machine.env["CUDA_PATH"] ?? DEFAULT_TOOLKIT;
  const text = await machine.files.readText(`${home}/version.json`, 65_536);
  const toolkit = /"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+\.[\d.]+)"/.exec(text ?? "")?.[1];
  const said = inventory.devices.find((d) => d.family === "nvidia-gpu")?.driverVersion;
  const evidence = `the driver${said === undefined ? "" : ` ${said}`} runs CUDA ${driver}`;
  const isNewer = (version: string) => Number(major(version)) > Number(major(driver));
  const nvrtc = facts.nvrtc?.version;
  const newer = [
    ...(toolkit !== undefined && isNewer(toolkit) ? [`${home} is CUDA ${toolkit}`] : []),
    ...(nvrtc !== undefined && isNewer(nvrtc) ? [`NVRTC is ${nvrtc}`] : []),
  ];
  if (newer.length > 0) {
    findings.push({
      code: "RUNTIME_NEWER_THAN_DRIVER",
      severity: "warning",
      message: `The CUDA runtime here is newer than the driver, which runs CUDA ${driver}: what is built with it does not start.`,
      evidence: [evidence, ...newer],
      mend: "Update the NVIDIA driver, or use a runtime of the driver's major version; on data centre GPUs the cuda-compat package bridges it.",
    });
  }
  const built = facts.nccl?.builtForCuda;
  if (built !== undefined && isNewer(built)) {
    findings.push({
      code: "NCCL_NEWER_THAN_DRIVER",
      severity: "error",
      message: `NCCL ${facts.nccl?.version ?? ""} was built for CUDA ${built}; the driver runs CUDA ${driver}: "CUDA driver version is insufficient" is what it will say.`,
      evidence: [evidence, `${facts.nccl?.path ?? "libnccl"}: +cuda${built}`],
      mend: `Install the NCCL of CUDA ${major(driver)} (libnccl2=...+cuda${major(driver)}.x, or pip install nvidia-nccl-cu${major(driver)}), or update the driver.`,
    });
  }
  return findings;
};

const ncclLibrary: Check = ({ facts: { nccl } }) => {
  if (nccl === undefined) return [];
  const where = nccl.path ?? "libnccl";
  const update = "Install a newer NCCL: apt-get install libnccl2, or pip install nvidia-nccl-cu12 (cu13).";
  if (nccl.version === undefined) {
    if (nccl.problem === undefined || !/does not export|older than/.test(nccl.problem)) return [];
    return {
      code: "NCCL_TOO_OLD",
      severity: "error",
      message: `No NCCL here is ${OLDEST_NCCL} or newer, which the nccl backend needs.`,
      evidence: [nccl.problem.slice(0, 300)],
      mend: update,
    };
  }
  if (compareVersions(nccl.version, OLDEST_NCCL) < 0) {
    return {
      code: "NCCL_TOO_OLD",
      severity: "error",
      message: `NCCL is ${nccl.version}; the nccl backend needs ${OLDEST_NCCL} or newer.`,
      evidence: [`${where}: ${nccl.version}`],
      mend: update,
    };
  }
  const { version } = nccl;
  const stripped = (nccl.missing ?? []).filter(({ since }) => compareVersions(version, since) >= 0);
  if (stripped.length === 0) return [];
  return {
    code: "NCCL_SYMBOLS_MISSING",
    severity: "warning",
    message: `NCCL says it is ${version}, but lacks functions of that version: a stand-in, or a stripped build.`,
    evidence: stripped.map(({ symbol, since }) => `${symbol} (since ${since}) is not in ${where}`),
    mend: "Look which libnccl.so.2 is loaded (LD_LIBRARY_PATH, Python wheels), or name the right one in CHORALE_NCCL_LIBRARY.",
  };
};

const peerAccess: Check = ({ facts: { cuda }, inventory }) => {
  const pairs = (cuda?.noPeerAccess ?? []).filter(([a, b]) => a < b);
  if (pairs.length === 0 || inventory.warnings.some((w) => /cannot read each other's memory/.test(w.message)))
    return [];
  const names = cuda?.names ?? [];
  const isByProduct = names.length > 0 && names.every((name) => /GeForce/.test(name));
  return {
    code: "NO_PEER_ACCESS",
    severity: isByProduct ? "info" : "warning",
    message: `${pairs.length} pair${pairs.length === 1 ? "" : "s"} of GPUs cannot reach each other's memory; NCCL copies through host memory between them.`,
    evidence: [
      `cuDeviceCanAccessPeer is 0: ${pairs
        .slice(0, 8)
        .map(([a, b]) => `${a}-${b}`)
        .join(", ")}`,
    ],
    mend: isByProduct
      ? "The driver gives GeForce GPUs no peer access over PCIe."
      : "See the findings on ACS, IOMMU and NVLink; in a virtual machine the hypervisor must allow it; GPUs under different host bridges of some platforms cannot peer at all.",
  };
};

const linksDown: Check = ({ gpus }) => {
  const dark = gpus.filter((gpu) => {
    const links = gpu.details?.["nvlinks"] as { active?: unknown; inactive?: unknown } | undefined;
    return isOnBaseboard(gpu.name) && links?.active === 0 && Number(links.inactive) > 0;
  });
  if (dark.length === 0) return [];
  return {
    code: "LINKS_DOWN",
    severity: "error",
    message: `All NVLinks of ${dark.map((gpu) => gpu.id).join(", ")} are down.`,
    evidence: dark.slice(0, 8).map((gpu) => `${gpu.id} (${gpu.name}): ${JSON.stringify(gpu.details?.["nvlinks"])}`),
    mend: "Start the fabric manager of the driver's own version (systemctl status nvidia-fabricmanager), then nvidia-smi nvlink -s; reset or service the board if they stay down.",
  };
};

const mig: Check = ({ inventory, gpus }) => {
  const parents = new Set(inventory.devices.flatMap((d) => (d.family === "nvidia-gpu" ? (d.parent ?? []) : [])));
  const split = gpus.filter((gpu) => gpu.details?.["migEnabled"] === true || parents.has(gpu.id));
  if (split.length === 0) return [];
  return {
    code: "MIG_ENABLED",
    severity: gpus.length > 1 ? "warning" : "info",
    message: `MIG is on for ${split.map((gpu) => gpu.id).join(", ")}: a process sees one instance only, without NVLink and peer access, so NCCL has no second GPU there.`,
    evidence: split.map((gpu) => `${gpu.id}: ${inventory.devices.filter((d) => d.parent === gpu.id).length} instances`),
    mend: "For collectives between GPUs turn MIG off (nvidia-smi -i N -mig 0, as root, with nothing running); single ranks may use an instance.",
  };
};

const MODE_QUERY = ["--query-gpu=index,persistence_mode,compute_mode", "--format=csv,noheader"];

/** Compute mode and persistence mode, which only nvidia-smi tells without a context. */
const modes: Check = async ({ machine, gpus }) => {
  if (gpus.length === 0) return [];
  const answer = await machine.commands.run({ tool: "nvidia-smi", args: MODE_QUERY });
  // 14 and 15: one GPU is sick, and the rows of the others are printed.
  if (answer === undefined || ![0, 14, 15].includes(answer.exitCode ?? -1)) return [];
  const rows = answer.stdout.split("\n").flatMap((line) => {
    const [index, persistence, mode, ...rest] = line.split(",").map((cell) => cell.trim());
    return /^\d+$/.test(index ?? "") && mode !== undefined && rest.length === 0
      ? [{ line: line.trim(), index, persistence, mode }]
      : [];
  });
  const findings: Finding[] = [];
  const list = (found: typeof rows) => found.map((row) => row.index).join(", ");
  const evidence = (found: typeof rows) => [MODE_QUERY[0] ?? "", ...found.slice(0, 16).map((row) => row.line)];
  const prohibited = rows.filter((row) => row.mode === "Prohibited");
  if (prohibited.length > 0) {
    findings.push({
      code: "COMPUTE_PROHIBITED",
      severity: "error",
      message: `The compute mode of GPU ${list(prohibited)} prohibits any use by CUDA.`,
      evidence: evidence(prohibited),
      mend: "As root: nvidia-smi -c DEFAULT.",
    });
  }
  const exclusive = rows.filter((row) => /^Exclusive/.test(row.mode ?? ""));
  if (exclusive.length > 0) {
    findings.push({
      code: "COMPUTE_EXCLUSIVE",
      severity: "warning",
      message: `GPU ${list(exclusive)} takes one process at a time: whoever comes second gets "device busy or unavailable", a replacement of a rank that still ends among them.`,
      evidence: evidence(exclusive),
      mend: "As root: nvidia-smi -c DEFAULT; or see that exactly one rank uses each GPU.",
    });
  }
  const asleep = rows.filter((row) => row.persistence === "Disabled");
  if (asleep.length > 0) {
    findings.push({
      code: "PERSISTENCE_OFF",
      severity: "info",
      message: `Persistence mode is off for GPU ${list(asleep)}: the driver unloads when nobody uses it, and the next start takes seconds.`,
      evidence: evidence(asleep),
      mend: "systemctl enable --now nvidia-persistenced.",
    });
  }
  return findings;
};

/** Xid numbers that speak of hardware or driver rather than of a program; the others are listed as they are. */
const GRAVE_XID: Readonly<Record<number, string>> = {
  48: "double-bit ECC error",
  62: "internal micro-controller halt",
  63: "row remapping or page retirement",
  64: "row remapping or page retirement failed",
  74: "NVLink error",
  79: "GPU has fallen off the bus",
  92: "high rate of single-bit ECC errors",
  94: "contained ECC error",
  95: "uncontained ECC error",
  119: "GSP does not answer",
  120: "GSP error",
  140: "unrecovered ECC error",
  144: "NVLink error (SAW)",
  145: "NVLink error (RLW)",
  146: "NVLink error (TLW)",
  147: "NVLink error (TREX)",
  148: "NVLink error (NVLPW)",
  149: "NVLink error (NETIR)",
  150: "NVLink error (MSE)",
};

const xid: Check = async ({ machine, gpus, bus }) => {
  // A GPU that fell off the bus may keep all others from being listed: the log is read wherever there is a trace of one.
  const hasTrace =
    gpus.length > 0 ||
    bus.some(({ vendor, kind }) => vendor === "0x10de" && kind.startsWith("0x03")) ||
    (await machine.files.realPath("/sys/module/nvidia")) !== undefined;
  if (!hasTrace) return [];
  const log = await machine.commands.run({ tool: "dmesg", args: [] });
  const lines = (log?.stdout ?? "").split("\n").flatMap((line) => {
    const [, address, number] = /NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)/.exec(line) ?? [];
    return number === undefined ? [] : [{ line: line.trim().slice(0, 200), address, number: Number(number) }];
  });
  return [true, false].flatMap((grave): Finding | Finding[] => {
    const found = lines.filter((one) => (GRAVE_XID[one.number] !== undefined) === grave);
    if (found.length === 0) return [];
    const numbers = [...new Set(found.map((one) => one.number))];
    const text = numbers.map((n) => (GRAVE_XID[n] === undefined ? `${n}` : `${n} (${GRAVE_XID[n]})`)).join(", ");
    return {
      code: "XID_ERRORS",
      severity: grave ? "error" : "info",
      message: `The kernel's log has Xid ${text} of ${[...new Set(found.map((one) => one.address))].join(", ")}.`,
      evidence: found.slice(-4).map((one) => one.line),
      mend: grave
        ? "Drain the GPU, reset it or reboot, and have it serviced if it comes back (NVIDIA's XID Errors guide has the action for each number)."
        : "A program's own fault (13, 31, 43, 45), or history: look at the time of the lines.",
    };
  });
};

export const NVIDIA_CHECKS: readonly Check[] = [
  driverLibrary,
  cudaInit,
  runtimeVersions,
  ncclLibrary,
  peerAccess,
  linksDown,
  mig,
  modes,
  xid,
];
