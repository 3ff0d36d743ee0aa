/**
 * What around the GPUs keeps NCCL from working or makes it slow: /dev/shm, locked memory, more ranks than GPUs, ranks that
 * cannot share memory handles, and variables that turn things off. Variables as NCCL's user guide describes them.
 */
import type { Check } from "./examined-machine.ts";
import type { Finding } from "./finding.ts";
import { namedInterfaces } from "./nccl-interfaces.ts";

const MIB = 2 ** 20;
/** What Docker gives a container. */
const DOCKER_SHM_BYTES = 64 * MIB;
/**
 * A segment of NCCL's shared-memory transport, bytes, as its failures report it (NVIDIA/nccl issues 525 and 1518), and how
 * many of them a rank makes with the two channels of a machine without NVLink.
 */
const SHM_SEGMENT_BYTES = 9_637_888;
const SEGMENTS_PER_RANK = 2;
/** Less locked memory than this, and network adapters cannot register NCCL's buffers. */
const ENOUGH_LOCKED_BYTES = 64 * MIB;

const mib = (bytes: number) => `${Math.round(bytes / MIB)} MiB`;

/** A mount option `size=` in bytes. */
function mountSize(text: string | undefined): number | undefined {
  const [, number, unit = ""] = /(?:^|,)size=(\d+)([kKmMgG]?)(?:,|$)/.exec(text ?? "") ?? [];
  if (number === undefined) return undefined;
  return Number(number) * ({ k: 2 ** 10, m: 2 ** 20, g: 2 ** 30 }[unit.toLowerCase()] ?? 1);
}

const sharedMemory: Check = async ({ machine: { files }, facts, gpus }) => {
  if (gpus.length < 2) return [];
  const mounts = (await files.readText("/proc/self/mountinfo", 65_536)) ?? "";
  const line = mounts.split("\n").findLast((entry) => entry.split(" ")[4] === "/dev/shm");
  const total = facts.shm?.totalBytes ?? mountSize(line?.split(" ").at(-1));
  if (total === undefined) return [];
  const needed = Math.max(DOCKER_SHM_BYTES + 1, gpus.length * SEGMENTS_PER_RANK * SHM_SEGMENT_BYTES);
  const evidence = line === undefined ? [`/dev/shm: ${total} bytes`] : [line.slice(0, 200)];
  const mend =
    "Docker: --shm-size=1g (or --ipc=host); Kubernetes: an emptyDir of medium Memory at /dev/shm; else mount -o remount,size=1g /dev/shm.";
  if (total < needed) {
    return {
      code: "SHM_SMALL",
      severity: "warning",
      message: `/dev/shm has ${mib(total)}; NCCL's ranks on ${gpus.length} GPUs want ${mib(needed)} or more where they cannot use peer access.`,
      evidence,
      mend,
    };
  }
  const free = facts.shm?.freeBytes;
  if (free === undefined || free >= needed) return [];
  return {
    code: "SHM_FULL",
    severity: "warning",
    message: `/dev/shm has ${mib(free)} free of ${mib(total)}; NCCL may want ${mib(needed)}.`,
    evidence: [`statfs of /dev/shm: ${free} of ${total} bytes free`],
    mend: "Remove what dead processes left there (ls -l /dev/shm; nccl-* of runs that are over), or make it larger.",
  };
};

const lockedMemory: Check = async ({ machine: { files }, inventory, gpus }) => {
  const hasRdma = inventory.topology.links.some((link) => link.kind === "infiniband" || link.kind === "roce");
  const hasNic = inventory.topology.nodes.some(
    (node) => node.kind === "nic" && /^mlx|^bnxt_re|^efa|^irdma/.test(node.name ?? node.id),
  );
  if (gpus.length === 0 || !(hasRdma || hasNic)) return [];
  const limits = (await files.readText("/proc/self/limits", 8192)) ?? "";
  const line = limits.split("\n").find((entry) => entry.startsWith("Max locked memory"));
  const soft = /^Max locked memory\s+(\d+)\s/.exec(line ?? "")?.[1];
  if (line === undefined || soft === undefined || Number(soft) >= ENOUGH_LOCKED_BYTES) return [];
  return {
    code: "MEMLOCK_LOW",
    severity: "warning",
    message: `This process may lock ${Math.round(Number(soft) / 1024)} KiB of memory; RDMA adapters cannot register NCCL's buffers in that.`,
    evidence: [line.replace(/\s+/g, " ").trim()],
    mend: "ulimit -l unlimited (limits.conf: memlock; systemd: LimitMEMLOCK=infinity; Docker: --ulimit memlock=-1).",
  };
};

/** Variables with which launchers tell how many ranks run on this host. */
const LOCAL_SIZES = [
  "LOCAL_WORLD_SIZE",
  "OMPI_COMM_WORLD_LOCAL_SIZE",
  "MPI_LOCALNRANKS",
  "SLURM_NTASKS_PER_NODE",
] as const;

function localRanks(env: Readonly<Record<string, string | undefined>>) {
  for (const name of LOCAL_SIZES) {
    const text = env[name] ?? "";
    if (/^\d{1,5}$/.test(text)) return { name, ranks: Number(text) };
  }
  return undefined;
}

const ranksPerGpu: Check = ({ machine: { env }, gpus }) => {
  const findings: Finding[] = [];
  const mask = env["CUDA_VISIBLE_DEVICES"];
  const named = (mask ?? "")
    .split(",")
    .map((entry) => entry.trim())
    .filter((entry) => entry !== "");
  const again = named.filter((entry, i) => named.indexOf(entry) !== i);
  const local = localRanks(env);
  if (gpus.length === 0) return [];
  if (again.length > 0) {
    findings.push({
      code: "MASK_REPEATS",
      severity: "error",
      message: `CUDA_VISIBLE_DEVICES names ${[...new Set(again)].join(", ")} more than once: no two ranks of one communicator can be on one GPU ("Duplicate GPU detected").`,
      evidence: [`CUDA_VISIBLE_DEVICES=${(mask ?? "").slice(0, 100)}`],
      mend: "Name each device once.",
    });
  }
  if (local === undefined || local.ranks < 2) return findings;
  // A mask of one device is a launcher's way to give each rank its own; of several, every rank sees the same ones.
  const shared = named.length > 1 ? Math.min(named.length, gpus.length) : gpus.length;
  if (local.ranks > shared) {
    findings.push({
      code: "TWO_RANKS_ON_ONE_GPU",
      severity: "error",
      message: `${local.ranks} ranks run on this host and ${shared} GPU${shared === 1 ? " is" : "s are"} there for them: NCCL refuses two ranks on one GPU ("Duplicate GPU detected").`,
      evidence: [
        `${local.name}=${local.ranks}`,
        ...(mask === undefined ? [] : [`CUDA_VISIBLE_DEVICES=${mask.slice(0, 100)}`]),
      ],
      mend: "Start one rank per GPU, or widen the mask. (NCCL 2.30 has NCCL_MULTI_RANK_GPU_ENABLE=1, an experiment.)",
    });
  }
  return findings;
};

/** Each rank in a container of its own: memory handles and /dev/shm do not reach across. */
const separateContainers: Check = async ({ machine: { files, env }, inventory, gpus }) => {
  const local = localRanks(env);
  if (gpus.length === 0 || local === undefined || local.ranks < 2) return [];
  if (inventory.environment?.["container"] === undefined) return [];
  const status = (await files.readText("/proc/self/status", 8192)) ?? "";
  const pid = /^Pid:\s+(\d+)/m.exec(status)?.[1];
  if (pid !== "1") return [];
  return {
    code: "IPC_UNUSABLE",
    severity: "warning",
    message: `This rank is process 1 of its container, and ${local.ranks} ranks run on the host: ranks in separate containers can share neither CUDA memory handles nor /dev/shm.`,
    evidence: [`${local.name}=${local.ranks}`, "/proc/self/status: Pid: 1"],
    mend: "Start all ranks of a host in one container, or give the containers the host's namespaces: --ipc=host --pid=host.",
  };
};

/** A variable, whether a value of it hurts, how much, and what it does then. */
type Variable = readonly [name: string, hurts: (value: string) => boolean, severity: Finding["severity"], what: string];

const isOn = (value: string) => /^[1-9]\d*$/.test(value);
const isSet = (value: string) => value !== "";

const VARIABLES: readonly Variable[] = [
  ["NCCL_P2P_DISABLE", isOn, "warning", "GPUs do not read each other's memory; NVLink lies idle"],
  ["NCCL_P2P_LEVEL", (v) => /^(LOC|0)$/i.test(v), "warning", "peer access is used between no two GPUs"],
  ["NCCL_SHM_DISABLE", isOn, "warning", "GPUs without peer access talk over the network instead of shared memory"],
  ["NCCL_IB_DISABLE", isOn, "info", "InfiniBand and RoCE are not used between hosts"],
  ["NCCL_NET_GDR_LEVEL", (v) => /^(LOC|0)$/i.test(v), "info", "adapters do not read GPU memory directly"],
  ["NCCL_NET", (v) => /^socket$/i.test(v), "info", "InfiniBand, RoCE and network plugins are not used between hosts"],
  ["NCCL_HOSTID", isSet, "info", "ranks with another value count as on another host: no peer access, no shared memory"],
  ["NCCL_SOCKET_IFNAME", (v) => /^=?lo$/.test(v), "info", "only this host can be reached"],
  ["NCCL_ALGO", isSet, "info", "NCCL does not choose the algorithm by size"],
  ["NCCL_PROTO", isSet, "info", "NCCL does not choose the protocol by size"],
  ["NCCL_MAX_NCHANNELS", (v) => /^[1-4]$/.test(v), "warning", "few channels carry large messages slowly"],
  ["NCCL_MAX_CTAS", (v) => /^[1-4]$/.test(v), "warning", "few thread blocks carry large messages slowly"],
  ["NCCL_DEBUG", (v) => /^(INFO|TRACE)$/i.test(v), "info", "NCCL prints at every start (TRACE: at every call)"],
  [
    "CUDA_LAUNCH_BLOCKING",
    isOn,
    "warning",
    "every launch waits for its end: slow, and collectives of several GPUs of one process can wait for each other for ever",
  ],
];

/** Reads `NAME=value` lines of NCCL's own configuration files. */
function configured(text: string | undefined): ReadonlyMap<string, string> {
  const lines = (text ?? "").split("\n").flatMap((line) => {
    const [, name, value] = /^\s*([A-Z][A-Z0-9_]*)\s*=\s*(.*?)\s*$/.exec(line) ?? [];
    return name === undefined ? [] : [[name, value ?? ""] as const];
  });
  return new Map(lines);
}

const variables: Check = async ({ machine: { env, files }, gpus }) => {
  if (gpus.length === 0) return [];
  const file = configured(await files.readText("/etc/nccl.conf", 65_536));
  return VARIABLES.flatMap(([name, hurts, severity, what]): Finding | Finding[] => {
    const value = env[name] ?? file.get(name);
    if (value === undefined || !hurts(value.trim())) return [];
    const where = env[name] === undefined ? "/etc/nccl.conf: " : "";
    return {
      code: "NCCL_VARIABLE",
      severity,
      message: `${name}: ${what}.`,
      evidence: [`${where}${name}=${value.slice(0, 80).replace(/[^\x20-\x7e]/g, "?")}`],
      mend: "Unset it, unless it was set to work round a fault that is still there.",
    };
  });
};

const interfaces: Check = async (about) => {
  const { env, files } = about.machine;
  const file = configured(await files.readText("/etc/nccl.conf", 65_536));
  const settingOf = (name: string) => {
    const value = env[name] ?? file.get(name);
    return value === undefined ? undefined : { value, where: env[name] === undefined ? "/etc/nccl.conf: " : "" };
  };
  return namedInterfaces(settingOf)(about);
};

export const NCCL_ENVIRONMENT_CHECKS: readonly Check[] = [
  sharedMemory,
  lockedMemory,
  ranksPerGpu,
  separateContainers,
  variables,
  interfaces,
];
