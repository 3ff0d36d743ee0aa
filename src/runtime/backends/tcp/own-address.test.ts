/** Which address of its host a rank takes. */
import type { NetworkInterfaceInfo } from "node:os";
import { expect, it } from "vitest";
import { describeAddress, describeInterfaces, ownAddress } from "./own-address.ts";

const at = (...addresses: readonly string[]) =>
  addresses.map((address) => ({ address, family: address.includes(":") ? "IPv6" : "IPv4" }) as NetworkInterfaceInfo);
const interfaces = {
  lo: at("127.0.0.1", "::1"),
  eth0: at("fe80::1", "2001:db8::5", "10.0.0.5"),
  ib0: at("fe80::2", "fd00::2"),
  down: at("fe80::3"),
};

it("takes an interface by its name, IPv4 first, and leaves addresses and other names as they are", () => {
  expect(["eth0", "ib0", "lo"].map((name) => ownAddress(name, interfaces))).toEqual([
    "10.0.0.5",
    "fd00::2",
    "127.0.0.1",
  ]);
  for (const other of ["10.9.9.9", "::1", "fe80::1%eth0", "host-7", "constructor"])
    expect(ownAddress(other, interfaces)).toBe(other);
});

it("refuses what no other rank could connect to, and says what this host has", () => {
  expect(["10.0.0.5", "fd00::2", "host-7"].map((one) => describeAddress(one, interfaces))).toEqual([
    "10.0.0.5 (eth0)",
    "fd00::2 (ib0)",
    "host-7",
  ]);
  expect(describeInterfaces(interfaces)).toBe("lo 127.0.0.1, eth0 10.0.0.5, ib0 fd00::2");
  for (const all of ["0.0.0.0", "::", "0::0", "down"])
    expect(() => ownAddress(all, interfaces), all).toThrow(
      /CHORALE_TCP_HOST is .*; expected one address of this host, or one of its interfaces \(lo 127\.0\.0\.1, eth0 10/,
    );
});
