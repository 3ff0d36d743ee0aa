import { describe, expect, it } from "vitest";
import { checkHostNames, checkSockets } from "./meet-hosts.ts";

describe("what NCCL goes by between hosts", () => {
  const here = ["lo", "eth0", "eth1", "docker0"];

  it("chooses an interface that is there", () => {
    for (const list of [undefined, "", "eth", "=eth1", "^docker,lo", "eth0:1"]) checkSockets(list, here, true);
    checkSockets("lo", here, false);
    expect(() => checkSockets("ib", here, false)).toThrow(
      /NCCL_SOCKET_IFNAME.*ib.*the beginning of an interface with an address on .*\(lo, eth0, eth1, docker0\), after = a whole name/,
    );
    expect(() => checkSockets("=eth", here, false)).toThrow(/after = a whole name/);
  });

  it("chooses one that other machines can reach", () => {
    for (const list of ["lo", "docker", "^eth"]) {
      expect(() => checkSockets(list, here, true)).toThrow(
        /one that other hosts can reach, which (lo|docker0|lo, docker0) of /,
      );
    }
  });

  it("tells hosts apart as chorale does", () => {
    const at = (host: string, name: string, ncclHost?: string) => ({ host, name, ncclHost });
    checkHostNames([at("a", "m1"), at("a", "m1"), at("b", "m2")]);
    checkHostNames([at("a", "m1", "x"), at("b", "m1", "y")]);
    expect(() => checkHostNames([at("a", "m1"), at("b", "m1")])).toThrow(
      /two hosts for ranks of one: give each host an NCCL_HOSTID.*rank 0: NCCL_HOSTID is not set, on m1.*rank 1/s,
    );
    expect(() => checkHostNames([at("a", "m1", "x"), at("b", "m2", "x")])).toThrow(/two hosts for ranks of one/);
    expect(() => checkHostNames([at("a", "m1", "x"), at("a", "m1", "y")])).toThrow(
      /one host for ranks of two.*NCCL_HOSTID=x.*NCCL_HOSTID=y/s,
    );
  });
});
