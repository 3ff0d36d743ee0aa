/**
 * Where the machine stands: container, Kubernetes, Slurm, cloud, virtual machine, WSL, limits, storage. From files and
 * environment variables alone: no metadata service is asked.
 */
import type { Inventory } from "../topology/index.ts";
import { readLimits } from "./cgroup-limits.ts";
import { MASK_VARIABLES } from "./device-masks.ts";
import { count, cpuList, field, line, pciAddress } from "./field-readers.ts";
import type { FileSystem } from "./machine.ts";
import { defined, pciBandwidthGBps, readPci } from "./pci.ts";
import type { ProbeContext } from "./probe.ts";

type Facts = NonNullable<Inventory["environment"]>;

/** Slurm's variables about what a job was given. */
const SLURM_VARIABLES = [
  "SLURM_JOB_ID",
  "SLURM_JOB_PARTITION",
  "SLURM_NNODES",
  "SLURM_NTASKS",
  "SLURM_PROCID",
  "SLURM_LOCALID",
  "SLURM_GPUS_ON_NODE",
  "SLURM_JOB_GPUS",
  "SLURM_STEP_GPUS",
  "SLURM_CPUS_PER_TASK",
  "SLURM_MEM_PER_NODE",
] as const;

/** The only variables that are ever recorded; none holds a secret. */
export const RECORDED_VARIABLES: readonly string[] = [
  ...MASK_VARIABLES,
  ...SLURM_VARIABLES,
  "TPU_ACCELERATOR_TYPE",
  "TPU_CHIPS_PER_HOST_BOUNDS",
  "TPU_TOPOLOGY",
  "TPU_WORKER_ID",
  "KUBERNETES_SERVICE_HOST",
  "POD_NAMESPACE",
  "WSL_DISTRO_NAME",
  "container",
  "NVIDIA_DRIVER_CAPABILITIES",
  "AWS_REGION",
  "AWS_DEFAULT_REGION",
];

const DMI = "/sys/devices/virtual/dmi/id";

/** Reads the environment. What is not there leaves no key. */
export async function readEnvironment(context: ProbeContext): Promise<Facts> {
  const { files, env } = context;
  const [container, kubernetes, cloud, virtual, limits, storage, version] = await Promise.all([
    readContainer(context),
    readKubernetes(context),
    readCloud(files),
    readVirtualMachine(files),
    readLimits(files),
    readStorage(files),
    files.readText("/proc/version", 1024),
  ]);
  const cpus = cpuList(limits.cpuset).length;
  return {
    platform: context.platform,
    arch: context.arch,
    ...defined({
      kernel: field(/^Linux version (\S{1,128})/.exec(version ?? "")?.[1]),
      container,
      kubernetes,
      slurm: readSlurm(env),
      cloud,
      virtualMachine: virtual,
      wsl: /microsoft/i.test(version ?? "") ? (/WSL2/i.test(version ?? "") ? 2 : 1) : undefined,
    }),
    ...((limits.memoryBytes !== undefined || limits.cpus !== undefined) && {
      limits: defined({
        memoryBytes: limits.memoryBytes,
        cpus: limits.cpus,
        cpuset: limits.cpuset,
        numCpus: cpus || undefined,
      }),
    }),
    ...(storage.length > 0 && { storage }),
  };
}

async function readContainer({ files, env }: ProbeContext): Promise<Facts | undefined> {
  const [docker, podman, own, init, mounts] = await Promise.all([
    files.access("/.dockerenv"),
    files.access("/run/.containerenv"),
    files.readText("/proc/self/cgroup", 16_384),
    files.readText("/proc/1/cgroup", 16_384),
    files.readText("/proc/self/mountinfo", 65_536),
  ]);
  const groups = `${own ?? ""}\n${init ?? ""}`;
  const said = env["container"];
  const runtime =
    podman !== "absent" || said === "podman" || /libpod/.test(groups)
      ? "podman"
      : docker !== "absent"
        ? "docker"
        : /crio-|cri-o/.test(groups)
          ? "cri-o"
          : /cri-containerd|containerd/.test(groups)
            ? "containerd"
            : /docker/.test(groups)
              ? "docker"
              : /kubepods/.test(groups)
                ? "kubernetes"
                : /\/lxc/.test(groups) || said === "lxc"
                  ? "lxc"
                  : /(apptainer|singularity)/i.test(said ?? "") || env["APPTAINER_CONTAINER"] !== undefined
                    ? "apptainer"
                    : // cgroup v2 with a namespace shows only `/`; the overlay root tells.
                      /^\S+ \S+ \S+ \S+ \/ .* - overlay /m.test(mounts ?? "") &&
                        /docker|containerd|containers\/storage/.test(mounts ?? "")
                      ? /containers\/storage/.test(mounts ?? "")
                        ? "podman"
                        : /docker/.test(mounts ?? "")
                          ? "docker"
                          : "containerd"
                      : undefined;
  return runtime === undefined ? undefined : { runtime };
}

async function readKubernetes({ files, env }: ProbeContext): Promise<Facts | undefined> {
  const folder = "/var/run/secrets/kubernetes.io/serviceaccount";
  const [namespace, groups] = await Promise.all([
    files.readText(`${folder}/namespace`, 256),
    files.readText("/proc/self/cgroup", 16_384),
  ]);
  if (namespace === undefined && env["KUBERNETES_SERVICE_HOST"] === undefined && !/kubepods/.test(groups ?? ""))
    return undefined;
  // Device plugins tell the container what it was given through the runtime's variable.
  const plugin = env["NVIDIA_VISIBLE_DEVICES"];
  const named = plugin === undefined || /^(all|none|void|)$/.test(plugin) ? undefined : plugin.split(",").length;
  return {
    ...defined({
      namespace: field(namespace) ?? field(env["POD_NAMESPACE"]),
      numDevicesFromPlugin: named,
      qualityOfService:
        /kubepods[.-](burstable|besteffort)/.exec(groups ?? "")?.[1] ??
        (/kubepods/.test(groups ?? "") ? "guaranteed" : undefined),
    }),
  };
}

function readSlurm(env: Readonly<Record<string, string | undefined>>): Facts | undefined {
  if (env["SLURM_JOB_ID"] === undefined) return undefined;
  const facts: Facts = {};
  for (const name of SLURM_VARIABLES) {
    const value = env[name];
    if (value === undefined) continue;
    const key = name
      .slice("SLURM_".length)
      .toLowerCase()
      .replace(/_(.)/g, (_, c: string) => c.toUpperCase());
    facts[key] = /^\d{1,15}$/.test(value) ? Number(value) : line(value);
  }
  return facts;
}

/** The cloud that the firmware names. `Xen` alone is no cloud, and Hyper-V is Azure only with Azure's chassis tag. */
async function readCloud(files: FileSystem): Promise<Facts | undefined> {
  const read = async (name: string) => field(await files.readText(`${DMI}/${name}`, 256)) ?? "";
  const [vendor, product, biosVendor, biosVersion, chassis, board] = (await Promise.all(
    ["sys_vendor", "product_name", "bios_vendor", "bios_version", "chassis_asset_tag", "board_asset_tag"].map(read),
  )) as [string, string, string, string, string, string];
  const hypervisor = field(await files.readText("/sys/hypervisor/uuid", 64)) ?? "";
  const found = (provider: string, instanceType?: string): Facts => ({ provider, ...defined({ instanceType }) });
  if (vendor === "Amazon EC2" || /amazon/i.test(biosVersion) || /^ec2/i.test(hypervisor)) {
    return {
      ...found("aws", /^[a-z][\w-]*\.[\w-]+$/.test(product) ? product : undefined),
      ...(/^i-[0-9a-f]{8,}$/.test(board) && { instanceId: board }),
    };
  }
  if (vendor === "Google" || product === "Google Compute Engine") return found("gcp");
  if (vendor === "Microsoft Corporation" && chassis.startsWith("7783-7084-3265-9085")) return found("azure");
  if (chassis === "OracleCloud.com") return found("oracle");
  if (vendor === "Alibaba Cloud") return found("alibaba", product.startsWith("Alibaba Cloud") ? undefined : product);
  if (vendor === "Tencent Cloud") return found("tencent");
  if (vendor === "DigitalOcean") return found("digitalocean");
  if (vendor === "Hetzner") return found("hetzner");
  if (/^(OpenStack|RDO)/.test(vendor) || /^OpenStack/.test(product)) return found("openstack");
  return biosVendor === "Scaleway" ? found("scaleway") : undefined;
}

async function readVirtualMachine(files: FileSystem): Promise<string | undefined> {
  const [vendor, product, xen, info] = await Promise.all([
    files.readText(`${DMI}/sys_vendor`, 256),
    files.readText(`${DMI}/product_name`, 256),
    files.readText("/sys/hypervisor/type", 64),
    files.readText("/proc/cpuinfo", 8192),
  ]);
  const said = `${vendor ?? ""} ${product ?? ""}`;
  if (/xen/i.test(`${xen ?? ""} ${said}`)) return "xen";
  if (/QEMU|KVM|OpenStack|Google Compute/i.test(said)) return "kvm";
  if (/VMware/i.test(said)) return "vmware";
  if (/Virtual Machine/i.test(product ?? "") && /Microsoft/i.test(vendor ?? "")) return "hyper-v";
  if (/VirtualBox/i.test(said)) return "virtualbox";
  if (/Amazon EC2/.test(said) && !/metal/.test(product ?? "")) return "kvm";
  return /^flags\s*:.*\bhypervisor\b/m.test(info ?? "") ? "unknown" : undefined;
}

/** Block devices that hold data, with the class of their bandwidth: the link's for NVMe, the interface's otherwise. */
async function readStorage(files: FileSystem): Promise<Facts[]> {
  const names = (await files.list("/sys/block"))
    .filter((name) => !/^(loop|dm-|ram|zram|sr|fd|md|nbd|zd)/.test(name))
    .slice(0, 64);
  return Promise.all(
    names.map(async (name) => {
      const [rotational, sectors, real] = await Promise.all([
        files.readText(`/sys/block/${name}/queue/rotational`, 16),
        files.readText(`/sys/block/${name}/size`, 32),
        files.realPath(`/sys/block/${name}`),
      ]);
      const address = (real ?? "")
        .split("/")
        .map(pciAddress)
        .findLast((part) => part !== undefined);
      const pci = name.startsWith("nvme") && address !== undefined ? await readPci(files, address) : undefined;
      const bandwidthGBps = pci === undefined ? undefined : pciBandwidthGBps(pci);
      const size = count(sectors);
      const spins = count(rotational);
      const kind = name.startsWith("nvme")
        ? "nvme"
        : /^(vd|xvd)/.test(name)
          ? "virtual"
          : spins === 1
            ? "hdd"
            : spins === 0
              ? "sata-ssd"
              : "unknown";
      // Serial ATA 6 Gb/s carries 0.6 GB/s; a disk's platters about a third of that.
      const byKind = { "sata-ssd": 0.6, hdd: 0.2 }[kind as "hdd"];
      return {
        name: line(name),
        kind,
        ...defined({
          sizeBytes: size === undefined ? undefined : size * 512,
          bandwidthClassGBps: bandwidthGBps ?? byKind,
        }),
      };
    }),
  );
}
