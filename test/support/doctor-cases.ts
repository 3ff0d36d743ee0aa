/** Machines of NVIDIA GPUs with one fault each, and the nearest ones without it: for the doctor's tests. */
import type { DoctorFinding, GpuFacts } from "../../src/apps/doctor/index.ts";
import { recordedRoot } from "./recorded-root.ts";

export interface Root {
  readonly files?: Readonly<Record<string, string>>;
  readonly links?: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
  readonly commands?: readonly {
    readonly argv: readonly string[];
    readonly stdout: string;
    readonly exitCode?: number;
  }[];
  readonly facts?: GpuFacts;
  readonly gpus?: number;
  readonly gpu?: Readonly<Record<string, unknown>>;
}

const HEALTHY: GpuFacts = {
  cuda: { version: "12.4", numDevices: 2, names: ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"], noPeerAccess: [] },
  nccl: { version: "2.21.5", path: "/usr/lib/libnccl.so.2", builtForCuda: "12.4", missing: [] },
  nvrtc: { version: "12.4" },
  shm: { totalBytes: 2 ** 30, freeBytes: 2 ** 29 },
};

/** Interfaces of a host with containers; the fast one is down. */
const NETS = {
  "/sys/class/net/lo/operstate": "unknown\n",
  "/sys/class/net/eth0/operstate": "up\n",
  "/sys/class/net/ib0/operstate": "down\n",
  "/sys/class/net/docker0/operstate": "up\n",
  "/sys/class/net/veth1a2b/operstate": "up\n",
};
const HCA = { "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n" };

/** A machine of NVIDIA GPUs on a baseboard, all well but for what `root` says. */
export function rootOf({
  files = {},
  links = {},
  env = {},
  commands = [],
  facts = HEALTHY,
  gpus = 2,
  gpu = {},
}: Root): string {
  const devices = Array.from({ length: gpus }, (_, index) => ({
    index,
    name: "NVIDIA H100 80GB HBM3",
    uuid: `GPU-0000000${index}-0000-0000-0000-000000000000`,
    pciAddress: `0000:${index + 1}b:00.0`,
    memoryTotalBytes: 85_520_809_984,
    computeCapability: "9.0",
    links: [{ link: 0, active: true, speedMBps: 26_562, remote: "switch" }],
    ...gpu,
  }));
  const all: Record<string, string> = {
    "/env.json": JSON.stringify(env),
    "/engines.json": JSON.stringify(facts),
    ...(gpus > 0 && {
      "/nvml.json": JSON.stringify({ driverVersion: "550.54.15", cudaVersion: "12.4", devices }),
    }),
    ...Object.fromEntries(
      commands.map((command, i) => [`/commands/0${i}.json`, JSON.stringify({ exitCode: 0, ...command })]),
    ),
    ...files,
  };
  return recordedRoot(all, links);
}

export const smi = (...lines: string[]) => ({
  argv: ["nvidia-smi", "--query-gpu=index,persistence_mode,compute_mode", "--format=csv,noheader"],
  stdout: `${lines.join("\n")}\n`,
});
const dmesg = (stdout: string) => ({ argv: ["dmesg"], stdout });
const shmMount = (options: string) => ({
  "/proc/self/mountinfo": `100 90 0:50 / / rw - overlay overlay rw\n101 100 0:51 / /dev/shm rw,nosuid shared:5 - tmpfs shm rw,${options}\n`,
});
const { shm: _shm, ...NO_SHM } = HEALTHY;
const limits = (locked: string) => ({
  "/proc/self/limits": `Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         ${locked}              ${locked}              bytes     \n`,
});
const adapter = {
  "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
  "/sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
  "/sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n",
};
const library = (version: string) => ({
  files: {
    "/sys/module/nvidia/version": "550.54.15\n",
    [`/usr/lib/x86_64-linux-gnu/libcuda.so.${version}`]: "",
  },
  links: { "/usr/lib/x86_64-linux-gnu/libcuda.so.1": `/usr/lib/x86_64-linux-gnu/libcuda.so.${version}` },
});
const cuda = (more: GpuFacts["cuda"]): GpuFacts => ({ ...HEALTHY, cuda: { ...HEALTHY.cuda, ...more } });
export const nccl = (more: GpuFacts["nccl"]): GpuFacts => ({ ...HEALTHY, nccl: { ...HEALTHY.nccl, ...more } });
const container = { "/.dockerenv": "" };
const pid = (n: number) => ({ "/proc/self/status": `Name:\tnode\nPid:\t${n}\n` });

/** What is wrong, the root that has it, what the finding must hold; and the nearest root that has nothing wrong. */
export const CASES: readonly {
  readonly code: string;
  readonly severity: DoctorFinding["severity"];
  readonly title: string;
  readonly bad: Root;
  readonly evidence: RegExp;
  readonly mend: RegExp;
  readonly good: Root;
}[] = [
  {
    code: "DRIVER_LIBRARY_MISMATCH",
    severity: "error",
    title: "a kernel module that is older than the driver's library",
    bad: library("560.35.03"),
    evidence: /kernel module: 550.54.15.*libcuda.so.560.35.03/,
    mend: /reboot/,
    good: library("550.54.15"),
  },
  {
    code: "DRIVER_LIBRARY_MISMATCH",
    severity: "error",
    title: "CUDA's status 803",
    bad: {
      facts: { ...HEALTHY, cuda: { initStatus: 803, problem: "cuInit returned 803: system has unsupported..." } },
    },
    evidence: /803/,
    mend: /Reboot/,
    good: {},
  },
  {
    code: "FABRIC_NOT_READY",
    severity: "error",
    title: "CUDA's status 802",
    bad: {
      facts: { ...HEALTHY, cuda: { initStatus: 802, problem: "cuInit returned 802: system not yet initialized" } },
    },
    evidence: /802/,
    mend: /fabricmanager/,
    good: {},
  },
  {
    code: "CUDA_INIT_FAILED",
    severity: "error",
    title: "a driver that does not start",
    bad: { facts: { ...HEALTHY, cuda: { initStatus: 999, problem: "cuInit returned 999: unknown error" } } },
    evidence: /999/,
    mend: /nvidia-uvm/,
    // Without a GPU that CUDA is absent is no fault.
    good: { gpus: 0, facts: { cuda: { problem: "libcuda.so.1: cannot open shared object file" } } },
  },
  {
    code: "RUNTIME_NEWER_THAN_DRIVER",
    severity: "warning",
    title: "a toolkit of the next major version",
    bad: { files: { "/usr/local/cuda/version.json": '{"cuda":{"name":"CUDA SDK","version":"13.0.1"}}' } },
    evidence: /driver 550.54.15 runs CUDA 12.4.*\/usr\/local\/cuda is CUDA 13.0.1/,
    mend: /Update the NVIDIA driver/,
    // Minor versions are compatible.
    good: { files: { "/usr/local/cuda/version.json": '{"cuda":{"name":"CUDA SDK","version":"12.9.0"}}' } },
  },
  {
    code: "RUNTIME_NEWER_THAN_DRIVER",
    severity: "warning",
    title: "an NVRTC of the next major version",
    bad: { facts: { ...HEALTHY, nvrtc: { version: "13.0" } } },
    evidence: /NVRTC is 13.0/,
    mend: /driver's major version/,
    good: { facts: { ...HEALTHY, nvrtc: { version: "12.9" } } },
  },
  {
    code: "NCCL_NEWER_THAN_DRIVER",
    severity: "error",
    title: "an NCCL that was built for a newer CUDA",
    bad: { facts: nccl({ builtForCuda: "13.0" }) },
    evidence: /runs CUDA 12.4.*\+cuda13.0/,
    mend: /nvidia-nccl-cu12/,
    good: { facts: nccl({ builtForCuda: "12.9" }) },
  },
  {
    code: "NCCL_TOO_OLD",
    severity: "error",
    title: "an NCCL before 2.14",
    bad: { facts: nccl({ version: "2.10.3" }) },
    evidence: /2.10.3/,
    mend: /newer NCCL/,
    good: { facts: nccl({ version: "2.14.3" }) },
  },
  {
    code: "NCCL_TOO_OLD",
    severity: "error",
    title: "an NCCL without a function that is needed",
    bad: { facts: { ...HEALTHY, nccl: { problem: "/usr/lib/libnccl.so.2 does not export ncclCommInitRankConfig" } } },
    evidence: /ncclCommInitRankConfig/,
    mend: /newer NCCL/,
    // Absent altogether: the list of engines says so.
    good: { facts: { ...HEALTHY, nccl: { problem: "libnccl.so.2: cannot open shared object file" } } },
  },
  {
    code: "NCCL_SYMBOLS_MISSING",
    severity: "warning",
    title: "an NCCL without a function of its own version",
    bad: { facts: nccl({ missing: [{ symbol: "ncclCommSplit", since: "2.18" }] }) },
    evidence: /ncclCommSplit \(since 2.18\)/,
    mend: /LD_LIBRARY_PATH/,
    good: { facts: nccl({ missing: [{ symbol: "ncclCommShrink", since: "2.27" }] }) },
  },
  {
    code: "NO_PEER_ACCESS",
    severity: "warning",
    title: "GPUs that cannot reach each other's memory",
    bad: {
      facts: cuda({
        noPeerAccess: [
          [0, 1],
          [1, 0],
        ],
      }),
    },
    evidence: /cuDeviceCanAccessPeer is 0: 0-1$/,
    mend: /ACS, IOMMU/,
    good: {},
  },
  {
    code: "NO_PEER_ACCESS",
    severity: "info",
    title: "GeForce, which never has peer access",
    bad: {
      facts: cuda({
        names: ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"],
        noPeerAccess: [
          [0, 1],
          [1, 0],
        ],
      }),
    },
    evidence: /0-1/,
    mend: /GeForce/,
    good: {},
  },
  {
    code: "LINKS_DOWN",
    severity: "error",
    title: "a baseboard whose NVLinks are all down",
    bad: {
      gpu: {
        links: [
          { link: 0, active: false },
          { link: 1, active: false },
        ],
      },
    },
    evidence: /gpu0 .*"active":0,"inactive":2/,
    mend: /fabricmanager/,
    // A card without its bridge.
    good: {
      gpu: {
        name: "NVIDIA A40",
        links: [
          { link: 0, active: false },
          { link: 1, active: false },
        ],
      },
    },
  },
  {
    code: "MIG_ENABLED",
    severity: "warning",
    title: "MIG",
    bad: { gpu: { migEnabled: true, mig: [{ index: 0, name: "MIG 3g.40gb" }] } },
    evidence: /gpu0: 1 instances/,
    mend: /-mig 0/,
    good: { gpu: { migEnabled: false } },
  },
  {
    code: "COMPUTE_EXCLUSIVE",
    severity: "warning",
    title: "a GPU in exclusive mode",
    bad: { commands: [smi("0, Enabled, Default", "1, Enabled, Exclusive_Process")] },
    evidence: /1, Enabled, Exclusive_Process/,
    mend: /-c DEFAULT/,
    good: { commands: [smi("0, Enabled, Default", "1, Enabled, Default")] },
  },
  {
    code: "COMPUTE_PROHIBITED",
    severity: "error",
    title: "a GPU that CUDA may not use",
    bad: { commands: [smi("0, Enabled, Prohibited", "1, Enabled, Default")] },
    evidence: /0, Enabled, Prohibited/,
    mend: /-c DEFAULT/,
    good: { commands: [{ ...smi("NVIDIA-SMI has failed"), exitCode: 9 }] },
  },
  {
    code: "PERSISTENCE_OFF",
    severity: "info",
    title: "persistence mode off",
    bad: { commands: [smi("0, Disabled, Default", "1, Disabled, Default")] },
    evidence: /0, Disabled, Default/,
    mend: /nvidia-persistenced/,
    good: { commands: [smi("garbage", "0, Disabled", "[N/A], Disabled, Default")] },
  },
  {
    code: "XID_ERRORS",
    severity: "error",
    title: "a GPU that fell off the bus",
    bad: { commands: [dmesg("[ 12.5] NVRM: Xid (PCI:0000:1b:00): 79, pid=0, GPU has fallen off the bus.\n")] },
    evidence: /Xid \(PCI:0000:1b:00\): 79/,
    mend: /Drain/,
    good: { commands: [dmesg("[ 12.5] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15\n")] },
  },
  ...[144, 145, 146, 147, 148, 149, 150].map((xid) => ({
    code: "XID_ERRORS",
    severity: "error" as const,
    title: `NVLink error ${xid}`,
    bad: { commands: [dmesg(`[ 9.1] NVRM: Xid (PCI:0000:1b:00): ${xid}, NETIR_LINK_EVT Nonfatal\n`)] },
    evidence: new RegExp(`: ${xid}, NETIR`),
    mend: /Drain/,
    good: { commands: [dmesg("[ 12.5] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15\n")] },
  })),
  {
    code: "XID_ERRORS",
    severity: "info",
    title: "a program's own fault in the log",
    bad: { commands: [dmesg("NVRM: Xid (PCI:0000:1b:00): 31, pid=99, MMU Fault\n")] },
    evidence: /31, pid=99/,
    mend: /program's own fault/,
    good: { commands: [{ argv: ["dmesg"], stdout: "", exitCode: 1 }] },
  },
  {
    code: "SHM_SMALL",
    severity: "warning",
    title: "Docker's /dev/shm of 64 MB",
    bad: { facts: NO_SHM, files: shmMount("size=65536k") },
    evidence: /\/dev\/shm .*size=65536k/,
    mend: /--shm-size=1g/,
    good: { facts: NO_SHM, files: shmMount("size=1048576k") },
  },
  {
    code: "SHM_SMALL",
    severity: "warning",
    title: "a /dev/shm that is too small for eight ranks",
    bad: { gpus: 8, facts: { ...HEALTHY, shm: { totalBytes: 128 * 2 ** 20, freeBytes: 128 * 2 ** 20 } } },
    evidence: /\/dev\/shm: 134217728 bytes/,
    mend: /--shm-size=1g/,
    // One GPU has nobody to share memory with.
    good: { gpus: 1, facts: { ...HEALTHY, shm: { totalBytes: 64 * 2 ** 20, freeBytes: 64 * 2 ** 20 } } },
  },
  {
    code: "SHM_FULL",
    severity: "warning",
    title: "a /dev/shm that is full",
    bad: { facts: { ...HEALTHY, shm: { totalBytes: 2 ** 30, freeBytes: 4096 } } },
    evidence: /4096 of 1073741824/,
    mend: /nccl-\*/,
    good: {},
  },
  {
    code: "MEMLOCK_LOW",
    severity: "warning",
    title: "too little locked memory for an RDMA adapter",
    bad: { files: { ...limits("8388608"), ...adapter } },
    evidence: /Max locked memory 8388608/,
    mend: /ulimit -l unlimited/,
    good: { files: { ...limits("unlimited"), ...adapter } },
  },
  {
    code: "MEMLOCK_LOW",
    severity: "warning",
    title: "64 KiB of locked memory",
    bad: { files: { ...limits("65536"), ...adapter } },
    evidence: /65536/,
    mend: /LimitMEMLOCK/,
    // Nothing registers memory where there is no adapter.
    good: { files: limits("65536") },
  },
  {
    code: "TWO_RANKS_ON_ONE_GPU",
    severity: "error",
    title: "more local ranks than GPUs",
    bad: { env: { OMPI_COMM_WORLD_LOCAL_SIZE: "4" } },
    evidence: /OMPI_COMM_WORLD_LOCAL_SIZE=4/,
    mend: /one rank per GPU/,
    good: { env: { OMPI_COMM_WORLD_LOCAL_SIZE: "2" } },
  },
  {
    code: "TWO_RANKS_ON_ONE_GPU",
    severity: "error",
    title: "more local ranks than the mask shows",
    bad: { gpus: 4, env: { LOCAL_WORLD_SIZE: "4", CUDA_VISIBLE_DEVICES: "0,2" } },
    evidence: /LOCAL_WORLD_SIZE=4 .*CUDA_VISIBLE_DEVICES=0,2/,
    mend: /widen the mask/,
    // Each rank has a mask of its own.
    good: { gpus: 4, env: { LOCAL_WORLD_SIZE: "4", CUDA_VISIBLE_DEVICES: "2" } },
  },
  {
    code: "MASK_REPEATS",
    severity: "error",
    title: "a mask that names a GPU twice",
    bad: { env: { CUDA_VISIBLE_DEVICES: "0,0" } },
    evidence: /CUDA_VISIBLE_DEVICES=0,0/,
    mend: /once/,
    good: { env: { CUDA_VISIBLE_DEVICES: "1,0" } },
  },
  {
    code: "IPC_UNUSABLE",
    severity: "warning",
    title: "ranks in containers of their own",
    bad: { files: { ...container, ...pid(1) }, env: { LOCAL_WORLD_SIZE: "2" } },
    evidence: /Pid: 1/,
    mend: /--ipc=host --pid=host/,
    good: { files: { ...container, ...pid(31) }, env: { LOCAL_WORLD_SIZE: "2" } },
  },
  {
    code: "NCCL_VARIABLE",
    severity: "warning",
    title: "NCCL_P2P_DISABLE",
    bad: { env: { NCCL_P2P_DISABLE: "1" } },
    evidence: /NCCL_P2P_DISABLE=1/,
    mend: /Unset it/,
    good: { env: { NCCL_P2P_DISABLE: "0", NCCL_DEBUG: "WARN", NCCL_NVLS_ENABLE: "0" } },
  },
  {
    code: "NCCL_VARIABLE",
    severity: "warning",
    title: "NCCL_SHM_DISABLE in NCCL's own file",
    bad: { files: { "/etc/nccl.conf": "# site\nNCCL_SHM_DISABLE = 1\n" } },
    evidence: /\/etc\/nccl.conf: NCCL_SHM_DISABLE=1/,
    mend: /Unset it/,
    good: { files: { "/etc/nccl.conf": "#NCCL_SHM_DISABLE=1\nNCCL_IB_HCA=mlx5_0\n" } },
  },
  {
    code: "NCCL_VARIABLE",
    severity: "info",
    title: "NCCL_DEBUG=TRACE",
    bad: { env: { NCCL_DEBUG: "TRACE" } },
    evidence: /TRACE/,
    mend: /Unset it/,
    // Without a GPU nobody reads it.
    good: { gpus: 0, env: { NCCL_DEBUG: "TRACE" } },
  },
  {
    code: "NCCL_VARIABLE",
    severity: "info",
    title: "NCCL_HOSTID",
    bad: { env: { NCCL_HOSTID: "other" } },
    evidence: /NCCL_HOSTID=other/,
    mend: /Unset it/,
    good: { env: { NCCL_HOSTID: "" } },
  },
  {
    code: "NCCL_INTERFACE",
    severity: "error",
    title: "NCCL_SOCKET_IFNAME that names nothing here",
    bad: { env: { NCCL_SOCKET_IFNAME: "=eth" }, files: NETS },
    evidence: /NCCL_SOCKET_IFNAME==eth/,
    mend: /\(eth0, ib0\)/,
    // A beginning is enough.
    good: { env: { NCCL_SOCKET_IFNAME: "eth" }, files: NETS },
  },
  {
    code: "NCCL_INTERFACE",
    severity: "warning",
    title: "NCCL_SOCKET_IFNAME that names a bridge of containers",
    bad: { env: { NCCL_SOCKET_IFNAME: "docker,veth" }, files: NETS },
    evidence: /docker,veth/,
    mend: /reaches the other hosts/,
    good: { env: { NCCL_SOCKET_IFNAME: "^docker,veth,lo" }, files: NETS },
  },
  {
    code: "NCCL_INTERFACE",
    severity: "error",
    title: "NCCL_SOCKET_IFNAME that names an interface that is down, in NCCL's own file",
    bad: { files: { ...NETS, "/etc/nccl.conf": "NCCL_SOCKET_IFNAME=ib0\n" } },
    evidence: /\/etc\/nccl.conf: NCCL_SOCKET_IFNAME=ib0/,
    mend: /Name the beginning/,
    good: { files: { ...NETS, "/etc/nccl.conf": "NCCL_SOCKET_IFNAME=ib0,eth0\n" } },
  },
  {
    code: "NCCL_INTERFACE",
    severity: "warning",
    title: "NCCL_IB_HCA that names no adapter",
    bad: { env: { NCCL_IB_HCA: "mlx5_2:1" }, files: HCA },
    evidence: /mlx5_0/,
    mend: /adapters that are there/,
    good: { env: { NCCL_IB_HCA: "=mlx5_0:1" }, files: HCA },
  },
];
