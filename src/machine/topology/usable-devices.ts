/** Which devices of an inventory a process can use. */
import type { Device, Inventory } from "./inventory.ts";

/**
 * The devices that a process can use: parts where a device is split (MIG instances), whole ones elsewhere. A GPU whose MIG
 * mode is on cannot be used whole, not even before it has instances.
 */
export function usableDevices({ devices }: Pick<Inventory, "devices">): Device[] {
  const carriers = new Set(devices.map((device) => device.parent));
  return devices.filter((device) => !carriers.has(device.id) && device.details?.["migEnabled"] !== true);
}
