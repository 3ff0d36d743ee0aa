/**
 * The address that a rank listens on and tells the others: one address of its host, given as such, by a name, or by the name of
 * an interface, as NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME give it.
 */
import { type NetworkInterfaceInfo, networkInterfaces } from "node:os";
import { InvalidArgumentError } from "../../../core/index.ts";

type Interfaces = NodeJS.Dict<NetworkInterfaceInfo[]>;

/** What says which address it is, for messages. */
export const HOST_SETTINGS = "backendOptions.host, or CHORALE_TCP_HOST";

/** The first address of an interface that other hosts can use: link-local ones need a zone that only this host knows. */
function usable(addresses: readonly NetworkInterfaceInfo[] = []): string | undefined {
  const sorted = [...addresses].sort((a, b) => Number(a.family === "IPv6") - Number(b.family === "IPv6"));
  return sorted.find(({ address }) => !/^fe[89ab]/i.test(address))?.address;
}

/** The interfaces of this host and their addresses, for messages. */
export function describeInterfaces(interfaces: Interfaces = networkInterfaces()): string {
  return Object.entries(interfaces)
    .map(([name, addresses]) => [name, usable(addresses)])
    .filter(([, address]) => address !== undefined)
    .map((pair) => pair.join(" "))
    .join(", ");
}

/**
 * The address that is meant.
 * @throws InvalidArgumentError for all addresses at once, which is none that another host can connect to, and for an interface
 *   without an address
 */
export function ownAddress(given: string, interfaces: Interfaces = networkInterfaces()): string {
  const accepted = `one address of this host, or one of its interfaces (${describeInterfaces(interfaces)})`;
  if (given === "0.0.0.0" || /^[0:]*::[0:]*$/.test(given))
    throw new InvalidArgumentError(HOST_SETTINGS, given, `${accepted}: the other ranks must be able to connect to it`);
  if (!Object.hasOwn(interfaces, given)) return given;
  const address = usable(interfaces[given]);
  if (address === undefined) throw new InvalidArgumentError(HOST_SETTINGS, given, accepted);
  return address;
}

/** Says which interface an address belongs to: `10.0.0.5 (eth0)`. */
export function describeAddress(address: string, interfaces: Interfaces = networkInterfaces()): string {
  const [name] = Object.entries(interfaces).find(([, all = []]) => all.some((one) => one.address === address)) ?? [];
  return name === undefined ? address : `${address} (${name})`;
}
