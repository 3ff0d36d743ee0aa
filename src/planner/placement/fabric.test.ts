/** What joins a set of devices: of the set alone, whatever the order it is given in. */
import { expect, it } from "vitest";
import type { Inventory } from "../../machine/topology/index.ts";
import { Fabric } from "./fabric.ts";

/** Two GPUs joined by NVLink on host 0, three without on host 1, one on host 2. */
function unevenHosts(): Inventory {
  const hosts = [2, 3, 1];
  const ids = hosts.flatMap((num, host) => Array.from({ length: num }, (_, at) => ({ id: `gpu${host}.${at}`, host })));
  return {
    schemaVersion: 1,
    devices: ids.map(({ id }, index) => ({
      ...{ id, family: "nvidia-gpu", vendor: "NVIDIA", name: "NVIDIA A100", arch: "8.0", index, visible: true },
      ...{ memoryBytes: 80e9, memoryBandwidthGBps: 2000 },
    })),
    topology: {
      nodes: [
        ...ids.map(({ id, host }) => ({ id, host, kind: "device" as const })),
        ...hosts.map((_, host) => ({ id: `nic${host}`, host, kind: "nic" as const })),
        { id: "net", kind: "network-switch" },
      ],
      links: [
        { a: "gpu0.0", b: "gpu0.1", kind: "nvlink", bandwidthGBps: 300 },
        ...hosts.map((_, host) => ({ a: `nic${host}`, b: "net", kind: "infiniband" as const, bandwidthGBps: 25 })),
      ],
    },
    warnings: [],
  };
}

function orders<T>(items: readonly T[]): T[][] {
  return items.length < 2
    ? [[...items]]
    : items.flatMap((item, at) => orders(items.filter((_, other) => other !== at)).map((rest) => [item, ...rest]));
}

it.each([
  [["gpu0.0", "gpu0.1", "gpu2.0"]],
  [["gpu0.0", "gpu0.1", "gpu1.0", "gpu1.1", "gpu2.0"]],
  [["gpu0.0", "gpu1.2"]],
])("joins %j by the same link in every order", (ids) => {
  const fabric = new Fabric(unevenHosts());
  const links = orders(ids).map((order) => {
    const link = fabric.group(order);
    return JSON.stringify({ ...link, machine: link?.machine?.() });
  });
  expect(new Set(links).size).toBe(1);
});

it("exchanges inside hosts over the slowest of their links", () => {
  const fabric = new Fabric(unevenHosts());
  expect(fabric.group(["gpu2.0", "gpu0.0", "gpu0.1"])?.inner?.scope).toBe("island");
  expect(fabric.group(["gpu0.0", "gpu0.1", "gpu1.0", "gpu1.1"])?.inner?.scope).toBe("host");
  expect(fabric.group(["gpu0.0", "gpu1.0", "gpu2.0"])?.inner).toBeUndefined();
});
