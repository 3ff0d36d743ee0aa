/** What the DRM and accel classes of sysfs share: cards by driver, hwmon sensors. */

import { hex, number, pciAddress } from "../field-readers.ts";
import type { FileSystem } from "../machine.ts";
import { defined } from "../pci.ts";

/** Most cards or accel devices that are read: more than any host has. */
const MAX_CARDS = 128;

export interface Card {
  /** `card0`, `accel3`. */
  readonly name: string;
  /** Its folder in sysfs: /sys/class/drm/card0/device. */
  readonly folder: string;
  readonly driver?: string;
  readonly vendor?: number;
  readonly device?: number;
  readonly pciAddress?: string;
}

/** The devices of a class, in numeric order; connectors (`card0-HDMI-A-1`) do not count. */
export async function readCards(files: FileSystem, kind: "drm" | "accel"): Promise<Card[]> {
  const pattern = kind === "drm" ? /^card\d{1,4}$/ : /^accel\d{1,4}$/;
  const names = (await files.list(`/sys/class/${kind}`)).filter((name) => pattern.test(name)).slice(0, MAX_CARDS);
  return Promise.all(
    names.map(async (name) => {
      const folder = `/sys/class/${kind}/${name}/device`;
      const [real, driver, vendor, device] = await Promise.all([
        files.realPath(folder),
        files.realPath(`${folder}/driver`),
        files.readText(`${folder}/vendor`, 32),
        files.readText(`${folder}/device`, 32),
      ]);
      return {
        name,
        folder,
        ...defined({
          driver: driverName(driver) ?? (await driverFromUevent(files, folder)),
          vendor: hex(vendor),
          device: hex(device),
          pciAddress: pciAddress(real?.split("/").at(-1)) ?? (await slotFromUevent(files, folder)),
        }),
      };
    }),
  );
}

/** The link's end; a copy of sysfs without links has a folder of that name, which tells nothing. */
function driverName(path: string | undefined): string | undefined {
  const name = path?.split("/").at(-1);
  return name === "driver" ? undefined : name;
}

async function driverFromUevent(files: FileSystem, folder: string): Promise<string | undefined> {
  return /^DRIVER=([\w-]+)$/m.exec((await files.readText(`${folder}/uevent`, 2048)) ?? "")?.[1];
}

async function slotFromUevent(files: FileSystem, folder: string): Promise<string | undefined> {
  return pciAddress(/^PCI_SLOT_NAME=(\S+)$/m.exec((await files.readText(`${folder}/uevent`, 2048)) ?? "")?.[1]);
}

export interface Sensors {
  readonly temperatureC?: number;
  readonly powerWatts?: number;
  readonly powerLimitWatts?: number;
}

/** The first hwmon of a device: millidegrees and microwatts (kernel documentation, hwmon sysfs interface). */
export async function readSensors(files: FileSystem, folder: string): Promise<Sensors> {
  const hwmon = (await files.list(`${folder}/hwmon`)).find((name) => /^hwmon\d+$/.test(name));
  if (hwmon === undefined) return {};
  const read = (name: string) => files.readText(`${folder}/hwmon/${hwmon}/${name}`, 64);
  const [temperature, average, input, cap] = await Promise.all([
    read("temp1_input"),
    read("power1_average"),
    read("power1_input"),
    read("power1_cap"),
  ]);
  const scaled = (text: string | undefined, divisor: number) => {
    const value = number(text);
    return value === undefined ? undefined : value / divisor;
  };
  const watts = scaled(average, 1e6) ?? scaled(input, 1e6);
  return defined({
    temperatureC: scaled(temperature, 1000),
    powerWatts: watts !== undefined && watts >= 0 ? watts : undefined,
    powerLimitWatts: nonNegative(scaled(cap, 1e6)),
  });
}

function nonNegative(value: number | undefined): number | undefined {
  return value !== undefined && value > 0 ? value : undefined;
}

/** Names such as `/dev/accel0` that match, in numeric order. */
export async function devNodes(files: FileSystem, pattern: RegExp, folder = "/dev"): Promise<string[]> {
  return (await files.list(folder)).filter((name) => pattern.test(name)).slice(0, MAX_CARDS);
}
