/**
 * What is wrong with a machine's accelerators, as data: each finding says what, the evidence, and the mend. Reads files and
 * an inventory only; nothing is changed.
 */
import type { Machine } from "../../machine/hardware/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { type Check, examineMachine } from "./examined-machine.ts";
import type { Finding, Severity } from "./finding.ts";
import type { GpuFacts } from "./gpu-facts.ts";
import { NCCL_ENVIRONMENT_CHECKS } from "./nccl-environment.ts";
import { NVIDIA_CHECKS } from "./nvidia.ts";

/** Kernel modules, what makes them whole, and the vendors' ids on the PCI bus. */
const DRIVERS = [
  { module: "nvidia", family: "nvidia-gpu", vendor: "0x10de", classes: /^0x03/, product: "NVIDIA GPU" },
  { module: "amdgpu", family: "amd-gpu", vendor: "0x1002", classes: /^0x(03|1200)/, product: "AMD GPU" },
  { module: "habanalabs", family: "gaudi", vendor: "0x1da3", classes: /^0x12/, product: "Gaudi card" },
  { module: "qaic", family: "qualcomm-ai", vendor: "0x17cb", classes: /^0x(12|0880)/, product: "Qualcomm AI card" },
  { module: "neuron", family: "neuron", vendor: "0x1d0f", classes: /^0x(12|0880)/, product: "Neuron device" },
] as const;

/** Most addresses that one finding names. */
const MAX_NAMED = 8;

/** The first of a list, and how many more there are. */
function someOf(names: readonly string[]): string {
  const more = names.length - MAX_NAMED;
  return more > 0 ? `${names.slice(0, MAX_NAMED).join(", ")} and ${more} more` : names.join(", ");
}

const driverPresence: Check = async ({ inventory, machine: { files }, bus }) => {
  const findings: Finding[] = [];
  for (const { module, family, vendor, classes, product } of DRIVERS) {
    const loaded = (await files.realPath(`/sys/module/${module}`)) !== undefined;
    const devices = bus.filter((entry) => entry.vendor === vendor && classes.test(entry.kind));
    const seen = inventory.devices.some((device) => device.family === family);
    if (loaded && devices.length === 0 && !seen) {
      findings.push({
        code: "DRIVER_WITHOUT_DEVICE",
        severity: "warning",
        message: `The kernel module ${module} is loaded, but no ${product} is on the PCI bus.`,
        mend: "A card that should be there has fallen off the bus or is not seated: look at dmesg, then reboot or reseat it. In a virtual machine, pass it through.",
      });
    }
    const orphaned = devices.filter(
      (entry) => entry.driver !== module && (family !== "nvidia-gpu" || entry.driver !== "vfio-pci"),
    );
    if (orphaned.length > 0 && !seen) {
      const held = [...new Set(orphaned.map((entry) => entry.driver ?? "no driver"))].join(", ");
      findings.push({
        code: "DEVICE_WITHOUT_DRIVER",
        severity: "error",
        message: `${someOf(orphaned.map((entry) => entry.address))}: ${product} held by ${held}, not by ${module}.`,
        mend: held.includes("nouveau")
          ? "Blacklist nouveau, install the NVIDIA driver and reboot."
          : `Install the vendor's driver and load it: modprobe ${module}.`,
      });
    }
    const captured = devices.filter((entry) => entry.driver === "vfio-pci");
    if (captured.length > 0 && family === "nvidia-gpu") {
      findings.push({
        code: "DEVICE_PASSED_THROUGH",
        severity: "info",
        message: `${someOf(captured.map((entry) => entry.address))}: held by vfio-pci for a virtual machine.`,
        mend: "Unbind vfio-pci and bind the vendor's driver to use it on this host.",
      });
    }
  }
  return findings;
};

/** Device nodes without which a runtime cannot start. */
const NODES: readonly (readonly [string, string])[] = [
  ["/dev/nvidiactl", "add the user to the group that owns it, or set NVreg_DeviceFileMode=0666 for the module"],
  ["/dev/nvidia0", "add the user to the group that owns it, or set NVreg_DeviceFileMode=0666 for the module"],
  ["/dev/nvidia-uvm", "run nvidia-modprobe -u -c=0, and give the user access"],
  ["/dev/kfd", "add the user to the groups render and video"],
  ["/dev/neuron0", "install aws-neuronx-dkms's udev rules, or add the user to the owning group"],
];

const permissions: Check = async ({ machine: { files } }) => {
  const findings: Finding[] = [];
  for (const [path, mend] of NODES) {
    if ((await files.access(path)) !== "denied") continue;
    findings.push({
      code: "NO_PERMISSION",
      severity: "error",
      message: `${path} may not be opened by this user.`,
      mend: `To mend it: ${mend}.`,
    });
  }
  return findings;
};

/** Warnings of detection about which another check has more to say. */
const SAID_ELSEWHERE = /hidden from this process|NVLinks is up|AMD GPUs? (is|are) on the PCI bus|no permission to open/;

/** What a warning of detection means. Of several rules that match, the first counts. */
interface WarningRule extends Pick<Finding, "code" | "severity" | "mend"> {
  readonly match: RegExp;
  /** Said instead of the warning's own words. */
  readonly message?: string;
  /** Whether the message names the source that warned. */
  readonly namesSource?: true;
  /** Whether the warning's own hint, where it has one, says more than `mend`. */
  readonly prefersHint?: true;
}

const WARNING_RULES: readonly WarningRule[] = [
  {
    match: /no permission to query/,
    code: "NO_PERMISSION",
    severity: "error",
    mend: "Give this user access to the device's files.",
    namesSource: true,
    prefersHint: true,
  },
  {
    match: /neither NVML nor nvidia-smi answers|cannot reach the NVIDIA driver/,
    code: "DRIVER_UNREACHABLE",
    severity: "error",
    mend: "Look at dmesg for NVRM lines; load the kernel module (modprobe nvidia) or install the driver again.",
    namesSource: true,
    prefersHint: true,
  },
  {
    match: /driver is loaded but finds no device/,
    code: "DRIVER_WITHOUT_DEVICE",
    severity: "warning",
    mend: "Look at dmesg for Xid and NVRM lines: a GPU may have fallen off the bus. Reboot or reseat it; in a container or virtual machine, pass it through.",
    namesSource: true,
  },
  {
    match: /different versions/,
    code: "DRIVER_LIBRARY_MISMATCH",
    severity: "error",
    message: "The NVIDIA kernel module and the user-space libraries are of different versions.",
    mend: "The driver was updated while it ran: reboot, or unload and load the nvidia modules. In a container, remove libnvidia-* that the image brings along.",
  },
  {
    match: /NVLinks are inactive/,
    code: "INACTIVE_LINKS",
    severity: "warning",
    mend: "Check nvidia-smi nvlink -s and the fabric manager (systemctl status nvidia-fabricmanager); reseat the bridge.",
  },
  {
    match: /cannot read each other's memory.*: the GPU does not support it$/s,
    code: "NO_PEER_ACCESS",
    severity: "info",
    mend: "",
    prefersHint: true,
  },
  {
    match: /cannot read each other's memory/,
    code: "NO_PEER_ACCESS",
    severity: "warning",
    mend: "See the findings on ACS and IOMMU; GPUs under different host bridges of some platforms cannot peer at all.",
  },
  {
    match: /uncorrected ECC/,
    code: "ECC_ERRORS",
    severity: "error",
    mend: "Drain the GPU and reset it; replace it if they come back.",
  },
  {
    match: /port \d+ is /,
    code: "PORT_DOWN",
    severity: "warning",
    mend: "Check the cable and the switch; ibstat shows the physical state.",
  },
  {
    match: /printed more than/,
    code: "TOOL_TROUBLE",
    severity: "warning",
    mend: "Its output was cut, so part of the hardware may be missing here. Run the tool by hand and look at what it prints.",
  },
  {
    match: /is lost: the driver cannot reach it/,
    code: "GPU_LOST",
    severity: "error",
    mend: "Reboot the host; reseat or replace the card if it comes back.",
    prefersHint: true,
  },
  {
    match: /infoROM of a GPU is corrupted/,
    code: "INFOROM_CORRUPT",
    severity: "warning",
    mend: "The GPU works, but its serial number, ECC and page-retirement records cannot be trusted: have it serviced.",
  },
  {
    match: /its NVLink fabric is not ready/,
    code: "FABRIC_NOT_READY",
    severity: "error",
    mend: "Start the fabric manager: systemctl start nvidia-fabricmanager.",
    prefersHint: true,
  },
  {
    match: /did not end within its deadline|did not return within/,
    code: "TOOL_TROUBLE",
    severity: "warning",
    mend: "The vendor's tool or driver hangs: look at dmesg; a reset or reboot is usual.",
  },
  {
    // Detection warned, so something may be missing here: never "nothing wrong".
    match: /(?:)/,
    code: "DETECTION_WARNING",
    severity: "warning",
    mend: "What was not understood is missing here, or its figures are: chorale detect lists what was read.",
    namesSource: true,
    prefersHint: true,
  },
];

const fromWarnings: Check = ({ inventory, bus }) => {
  const isOthers = bus.some(
    ({ vendor, kind, driver }) => vendor === "0x10de" && /^0x03/.test(kind) && driver !== "nvidia",
  );
  return inventory.warnings.flatMap(({ source, message, hint }) => {
    if (SAID_ELSEWHERE.test(message)) return [];
    // A GPU that another driver has, or nobody: DEVICE_WITHOUT_DRIVER says so.
    if (isOthers && /neither NVML nor nvidia-smi answers/.test(message)) return [];
    const rule = WARNING_RULES.find(({ match }) => match.test(message));
    if (rule === undefined) return [];
    const { code, severity } = rule;
    const said = rule.message ?? `${rule.namesSource ? `${source}: ` : ""}${message}.`;
    const mend = (rule.prefersHint ? hint : undefined) ?? rule.mend;
    return { code, severity, message: said, mend };
  });
};

const masked: Check = ({ inventory, machine: { env } }) => {
  const hidden = inventory.devices.filter((device) => !device.visible && device.parent === undefined);
  if (hidden.length === 0) return [];
  const names = [
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "HABANA_VISIBLE_DEVICES",
  ];
  const set = names
    .filter((name) => env[name] !== undefined)
    .map((name) => `${name}=${env[name]?.slice(0, 60).replace(/[^\x20-\x7e]/g, "?")}`);
  return {
    code: "MASKED_DEVICES",
    severity: "info",
    message: `${hidden.map((device) => device.id).join(", ")} hidden from this process by ${set.join(" ") || "its environment"}.`,
    mend: "Unset the variable, or name the devices that should be used.",
  };
};

/** Peer-to-peer copies go through the root complex when ACS redirects them or an IOMMU translates them. */
const peerToPeer: Check = async ({ inventory, machine: { files }, bus }) => {
  const gpus = inventory.devices.filter(
    (device) => device.family.endsWith("-gpu") && device.parent === undefined && device.pciAddress !== undefined,
  );
  if (gpus.length < 2) return [];
  const linked = (inventory.topology.pairs ?? []).every(
    (pair) => !/^(PIX|PXB|PHB|NODE|SYS)$/.test(pair.relation) || !gpus.some((g) => g.id === pair.b),
  );
  if (linked) return [];
  const findings: Finding[] = [];
  const commandLine = (await files.readText("/proc/cmdline", 4096)) ?? "";
  const types = await Promise.all(
    gpus.map(async (gpu) =>
      ((await files.readText(`/sys/bus/pci/devices/${gpu.pciAddress}/iommu_group/type`, 64)) ?? "").trim(),
    ),
  );
  if (types.some((type) => /^DMA/.test(type)) && !/iommu=pt/.test(commandLine)) {
    findings.push({
      code: "IOMMU_TRANSLATES",
      severity: "warning",
      message: `The IOMMU translates the GPUs' transfers (domain type ${types.find((type) => /^DMA/.test(type))}); peer-to-peer copies over PCIe are slow or fail.`,
      mend: "Boot with iommu=pt, or turn the IOMMU off in the firmware if nothing is passed through.",
    });
  }
  const redirecting = await Promise.all(
    bus.slice(0, 4096).map(async ({ address }) => {
      const flags = (await files.readText(`/sys/bus/pci/devices/${address}/acs_flags`, 64)) ?? "";
      return /\bRR\b|ReqRedir\+/.test(flags) ? [address] : [];
    }),
  );
  if (redirecting.flat().length > 0) {
    findings.push({
      code: "ACS_REDIRECTS",
      severity: "warning",
      message: `Access control services redirect peer-to-peer requests at ${redirecting.flat().slice(0, 4).join(", ")}.`,
      mend: "Turn ACS off on these bridges (setpci -s BRIDGE ECAP_ACS+6.w=0000) or in the firmware, where isolation is not needed.",
    });
  }
  return findings;
};

const pcieDegraded: Check = ({ inventory }) =>
  inventory.devices.flatMap(({ id, pcie }): Finding | Finding[] => {
    const { width, maxWidth } = pcie ?? {};
    if (width === undefined || maxWidth === undefined || width >= maxWidth) return [];
    return {
      code: "PCIE_NARROW",
      severity: "warning",
      message: `${id} runs on ${width} PCIe lanes of ${maxWidth}.`,
      mend: "The slot may be wired so; otherwise reseat the card or the riser.",
    };
  });

const fabricManager: Check = ({ inventory, gpus, bus }) => {
  const switched = inventory.topology.nodes.some((node) => node.kind === "nvswitch");
  const hasSwitch = bus.some(({ vendor, kind }) => vendor === "0x10de" && kind.startsWith("0x0680"));
  if (switched || gpus.length < 2 || !hasSwitch) return [];
  return {
    code: "NVSWITCH_DOWN",
    severity: "error",
    message: "NVSwitches are on the bus, but no GPU has a link to them.",
    mend: "Start the fabric manager of the driver's own version: systemctl start nvidia-fabricmanager.",
  };
};

const CHECKS: readonly Check[] = [
  driverPresence,
  permissions,
  fromWarnings,
  fabricManager,
  peerToPeer,
  pcieDegraded,
  masked,
  ...NVIDIA_CHECKS,
  ...NCCL_ENVIRONMENT_CHECKS,
];

/**
 * Examines a machine.
 * @param facts what its CUDA and NCCL libraries say of themselves: `readGpuFacts(machine)`
 * @returns the findings, the gravest first; empty when nothing is wrong
 */
export async function diagnose(inventory: Inventory, machine: Machine, facts: GpuFacts = {}): Promise<Finding[]> {
  const about = await examineMachine(inventory, machine, facts);
  const lists = await Promise.all(CHECKS.map((check) => check(about)));
  const all = onlyFirst(lists.flat(), "DRIVER_LIBRARY_MISMATCH");
  // The bus and the vendor's tool may both say that a driver has no device; once is enough.
  const first = all.findIndex((finding) => finding.code === "DRIVER_WITHOUT_DEVICE" && /nvidia/i.test(finding.message));
  const found = all.filter(
    (finding, i) => i <= first || finding.code !== "DRIVER_WITHOUT_DEVICE" || !/nvidia/i.test(finding.message),
  );
  const order: readonly Severity[] = ["error", "warning", "info"];
  return found.sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
}

/** Several sources may tell the same; the first is enough. */
function onlyFirst(findings: readonly Finding[], code: string): Finding[] {
  const first = findings.findIndex((finding) => finding.code === code);
  return findings.filter((finding, i) => finding.code !== code || i === first);
}
