/** NICs: InfiniBand and RoCE ports of /sys/class/infiniband with their state and rate, Ethernet of /sys/class/net. */
import type { TopologyNode } from "../topology/index.ts";
import { count, line, pciAddress } from "./field-readers.ts";
import type { FileSystem } from "./machine.ts";
import { defined } from "./pci.ts";
import type { ProbeWarning } from "./probe.ts";

/** Most NICs and ports that are read. */
const MAX_NICS = 64;
const MAX_PORTS = 8;
/** Most entries that are looked at: hosts of containers have a virtual interface for each. */
const MAX_LISTED = 512;

export interface Nic {
  readonly name: string;
  readonly pciAddress?: string;
  readonly details: NonNullable<TopologyNode["details"]>;
}

/** Reads every NIC that has a device behind it; virtual interfaces are left out. */
export async function readNics(files: FileSystem, warnings: ProbeWarning[]): Promise<Nic[]> {
  const [rdma, ethernet] = await Promise.all([readRdma(files, warnings), readEthernet(files)]);
  // The Ethernet function of a RoCE port is the same card: one node, with the interface's name.
  const byAddress = new Map(rdma.map((nic) => [nic.pciAddress, nic]));
  const merged = ethernet.filter((nic) => {
    const own = nic.pciAddress === undefined ? undefined : byAddress.get(nic.pciAddress);
    if (own !== undefined) own.details["interface"] = nic.name;
    return own === undefined;
  });
  return [...rdma, ...merged];
}

/** The entries of a folder that do not lead out of a recorded root: those belong to another machine. */
async function inside(files: FileSystem, folder: string, names: readonly string[]): Promise<string[]> {
  const listed = names.slice(0, MAX_LISTED);
  const real = await Promise.all(listed.map((name) => files.realPath(`${folder}/${name}`)));
  return listed.filter((_, i) => real[i] !== undefined);
}

async function readRdma(files: FileSystem, warnings: ProbeWarning[]): Promise<Nic[]> {
  const folder = "/sys/class/infiniband";
  const names = (await inside(files, folder, await files.list(folder))).slice(0, MAX_NICS);
  return Promise.all(
    names.map(async (name) => {
      const [device, driver, ports] = await Promise.all([
        files.realPath(`${folder}/${name}/device`),
        files.realPath(`${folder}/${name}/device/driver`),
        files.list(`${folder}/${name}/ports`),
      ]);
      const read = await Promise.all(
        ports
          .filter((port) => /^\d{1,3}$/.test(port))
          .slice(0, MAX_PORTS)
          .map((port) => readPort(files, `${folder}/${name}/ports/${port}`, Number(port))),
      );
      for (const port of read) {
        if (port.state === "ACTIVE") continue;
        warnings.push({
          source: "network",
          message: `${line(name)} port ${port.port} is ${port.state ?? "in an unknown state"}${port.physicalState === undefined ? "" : ` (${port.physicalState})`}`,
          hint: "It is not counted as a way out of this host.",
        });
      }
      const active = read.filter((port) => port.state === "ACTIVE");
      const rateGbps = active.reduce((sum, port) => sum + (port.rateGbps ?? 0), 0);
      const address = pciAddress(device?.split("/").at(-1));
      return {
        name: line(name),
        ...defined({ pciAddress: address }),
        details: {
          state: active.length > 0 ? "ACTIVE" : (read[0]?.state ?? "UNKNOWN"),
          linkLayer: read[0]?.linkLayer ?? "unknown",
          ...(rateGbps > 0 && { rateGbps }),
          ...(driver !== undefined && { driver: line(driver.split("/").at(-1) ?? "") }),
          ports: read.map((port) => ({ ...port })),
        },
      };
    }),
  );
}

interface Port {
  readonly port: number;
  readonly state?: string;
  readonly physicalState?: string;
  readonly rateGbps?: number;
  readonly linkLayer?: string;
  readonly roceVersion?: number;
}

async function readPort(files: FileSystem, folder: string, port: number): Promise<Port> {
  const read = (name: string) => files.readText(`${folder}/${name}`, 256);
  const [state, physical, rate, linkLayer, gids] = await Promise.all([
    read("state"),
    read("phys_state"),
    read("rate"),
    read("link_layer"),
    files.list(`${folder}/gid_attrs/types`),
  ]);
  const types = await Promise.all(
    gids.slice(0, 16).map((gid) => files.readText(`${folder}/gid_attrs/types/${gid}`, 64)),
  );
  const roceVersion = types.some((type) => /RoCE v2/i.test(type ?? ""))
    ? 2
    : types.some((type) => /RoCE/i.test(type ?? ""))
      ? 1
      : undefined;
  const layer = line(linkLayer ?? "");
  const afterColon = (text: string | undefined) => /^\d+:\s*(\S.*)$/.exec(line(text ?? ""))?.[1];
  return {
    port,
    ...defined({
      state: afterColon(state),
      physicalState: afterColon(physical),
      rateGbps: rateOf(rate),
      linkLayer: layer === "" ? undefined : layer,
      roceVersion: layer === "Ethernet" ? roceVersion : undefined,
    }),
  };
}

/** `200 Gb/sec (4X HDR)` is 200, `2.5 Gb/sec (1X SDR)` 2.5. */
function rateOf(text: string | undefined): number | undefined {
  const match = /^\s*(\d{1,5}(?:\.\d)?) Gb\/sec/.exec(text ?? "");
  return match === null ? undefined : Number(match[1]);
}

async function readEthernet(files: FileSystem): Promise<Nic[]> {
  const folder = "/sys/class/net";
  const all = (await files.list(folder)).filter((name) => name !== "lo").slice(0, MAX_LISTED);
  const names = await inside(files, folder, all);
  const nics = await Promise.all(
    names.map(async (name): Promise<Nic[]> => {
      const [device, type] = await Promise.all([
        files.realPath(`${folder}/${name}/device`),
        files.readText(`${folder}/${name}/type`, 16),
      ]);
      // 1 is Ethernet (if_arp.h); IP over InfiniBand, 32, belongs to a port that is listed above.
      if (device === undefined || (type !== undefined && count(type) !== 1)) return [];
      const [speed, state, driver] = await Promise.all([
        files.readText(`${folder}/${name}/speed`, 32),
        files.readText(`${folder}/${name}/operstate`, 32),
        files.realPath(`${folder}/${name}/device/driver`),
      ]);
      const megabits = count(speed);
      const address = device
        .split("/")
        .map(pciAddress)
        .findLast((part) => part !== undefined);
      return [
        {
          name: line(name),
          ...defined({ pciAddress: address }),
          details: {
            state: line(state ?? "unknown").toUpperCase(),
            linkLayer: "Ethernet",
            ...(megabits !== undefined && megabits > 0 && { rateGbps: megabits / 1000 }),
            ...(driver !== undefined && { driver: line(driver.split("/").at(-1) ?? "") }),
            interface: line(name),
          },
        },
      ];
    }),
  );
  return nics.flat().slice(0, MAX_NICS);
}
