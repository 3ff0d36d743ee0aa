import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { type Certificate, checkCertificate, sealCertificate } from "./index.ts";

const pair = (from: string, to: string, capacity: string) => [
  { from, to, capacity },
  { from: to, to: from, capacity },
];

/** A ring of three ranks, 10 GB/s a link: all-gather takes 1/30 s/GB, along the two ways round. */
const gather: Omit<Certificate, "seal"> = {
  schemaVersion: 1,
  collective: "all_gather",
  network: {
    nodes: ["a", "b", "c"].map((id) => ({ id, kind: "rank" })),
    edges: [...pair("a", "b", "10"), ...pair("b", "c", "10"), ...pair("c", "a", "10")],
  },
  secondsPerGB: "1/30",
  witness: { kind: "cut", inside: ["a", "b"] },
  schedule: {
    kind: "trees",
    trees: ["a", "b", "c"].map((root) => ({
      root,
      weight: "1/3",
      down: ["a", "b", "c"].filter((id) => id !== root).map((id) => [root, id]),
    })),
  },
};

/** Two ranks on a relay of 5 GB/s: an all-reduce needs every byte both ways. */
const reduce: Omit<Certificate, "seal"> = {
  schemaVersion: 1,
  collective: "all_reduce",
  network: {
    nodes: [
      { id: "a", kind: "rank" },
      { id: "w", kind: "relay" },
      { id: "b", kind: "rank" },
    ],
    edges: [...pair("a", "w", "5"), ...pair("w", "b", "5")],
  },
  secondsPerGB: "1/5",
  witness: {
    kind: "partition",
    parts: [
      { out: ["a"], in: ["a"] },
      { out: ["b"], in: ["b"] },
    ],
  },
  schedule: {
    kind: "trees",
    trees: [
      { root: "a", weight: "1/2", up: [["b", "w", "a"]], down: [["a", "w", "b"]] },
      { root: "b", weight: "1/2", up: [["a", "w", "b"]], down: [["b", "w", "a"]] },
    ],
  },
};

const all: Omit<Certificate, "seal"> = {
  schemaVersion: 1,
  collective: "all_to_all",
  network: reduce.network,
  secondsPerGB: "1/10",
  witness: { kind: "lengths", lengths: [{ from: "a", to: "w", length: "1" }] },
  schedule: {
    kind: "paths",
    paths: [
      { weight: "1/2", route: ["a", "w", "b"] },
      { weight: "1/2", route: ["b", "w", "a"] },
    ],
  },
};

/** What has to be trusted, beside the form of the data. */
const TRUSTED = ["check.ts", "exact-numbers.ts", "network.ts", "seal.ts"];

describe("the checker", () => {
  const source = (file: string) => readFileSync(new URL(file, import.meta.url), "utf8");
  const files = readdirSync(new URL(".", import.meta.url)).filter(
    (file) => file.endsWith(".ts") && !file.endsWith(".test.ts"),
  );

  it("stands on nothing that could solve or synthesise", () => {
    for (const file of files) {
      const imports = [...source(file).matchAll(/from "([^"]+)"/g)].map(([, path]) => path as string);
      expect(imports.filter((path) => !/^\.\/|^\.\.\/\.\.\/core\/index\.ts$|^node:crypto$|^zod$/.test(path))).toEqual(
        [],
      );
    }
  });

  it("is at most 300 lines of code, with all that it imports but the form of the data", () => {
    const form = ["certificate.ts", "index.ts", "schema.ts"];
    expect(files.filter((file) => !form.includes(file))).toEqual(TRUSTED);
    const lines = TRUSTED.flatMap((file) =>
      source(file)
        .replaceAll(/\/\*.*?\*\//gs, "")
        .split("\n"),
    );
    const code = lines.filter((line) => line.trim() !== "" && !line.trim().startsWith("//"));
    expect(code.length).toBeLessThanOrEqual(300);
    expect(source("check.ts").split("\n").length).toBeLessThanOrEqual(300);
  });
});

const faultsOf = (certificate: object): readonly string[] => checkCertificate(certificate).faults;

describe("checkCertificate", () => {
  it.each([
    ["all_gather", gather],
    ["all_reduce", reduce],
    ["all_to_all", all],
  ])("accepts a right certificate (%s)", (_, certificate) => {
    expect(checkCertificate(sealCertificate(certificate))).toMatchObject({ ok: true, faults: [] });
  });

  it("refuses whatever was changed after it was sealed", () => {
    const sealed = sealCertificate(gather);
    const network = {
      ...gather.network,
      edges: gather.network.edges.map((e, i) => (i === 0 ? { ...e, capacity: "11" } : e)),
    };
    expect(faultsOf({ ...sealed, network })[0]).toContain("changed after it was sealed");
    expect(faultsOf(gather)[0]).toContain("seal");
  });

  it.each<[string, object, RegExp]>([
    ["a better time", { ...gather, secondsPerGB: "1/31" }, /schedule takes 1\/30 s\/GB, not 1\/31/],
    ["a worse time", { ...gather, secondsPerGB: "1/29" }, /witness proves 1\/30/],
    ["a weaker cut", { ...gather, witness: { kind: "cut", inside: ["a"] } }, /witness proves 1\/60/],
    ["a cut around everybody", { ...gather, witness: { kind: "cut", inside: ["a", "b", "c"] } }, /rank on either side/],
    ["a witness of another collective", { ...gather, witness: reduce.witness }, /proves nothing about all_gather/],
    ["an unknown node", { ...gather, witness: { kind: "cut", inside: ["x"] } }, /"x" is no node/],
    ["a node twice", { ...gather, witness: { kind: "cut", inside: ["a", "a"] } }, /stands twice/],
    ["an unknown field", { ...gather, note: "trust me" }, /note does not belong/],
    [
      "parts that overlap",
      {
        ...reduce,
        witness: {
          kind: "partition",
          parts: [
            { out: ["a"], in: ["a"] },
            { out: ["a"], in: ["a"] },
          ],
        },
      },
      /in two parts/,
    ],
    [
      "a part left out",
      { ...reduce, witness: { kind: "partition", parts: [{ out: ["a"], in: ["a"] }] } },
      /at least 2 parts/,
    ],
    [
      "lengths of edges that are none",
      { ...all, witness: { kind: "lengths", lengths: [{ from: "a", to: "b", length: "1" }] } },
      /no such edge/,
    ],
    [
      "negative lengths",
      { ...all, witness: { kind: "lengths", lengths: [{ from: "a", to: "w", length: "-1" }] } },
      /above 0/,
    ],
    [
      "one edge with two lengths",
      {
        ...all,
        witness: {
          kind: "lengths",
          lengths: [
            { from: "a", to: "w", length: "1" },
            { from: "a", to: "w", length: "2" },
          ],
        },
      },
      /has a length already/,
    ],
    ["no lengths", { ...all, witness: { kind: "lengths", lengths: [] } }, /all lengths are 0/],
    ["a time of 0", { ...gather, secondsPerGB: "0" }, /above 0/],
    ["a denominator of 0", { ...gather, secondsPerGB: "1/0" }, /expected a fraction/],
    [
      "a field of a node",
      { ...gather, network: { ...gather.network, nodes: [{ id: "a", kind: "rank", spare: true }] } },
      /network\.nodes\[0\]: spare does not belong/,
    ],
    ["a field that hides", JSON.parse(JSON.stringify(gather).replace("{", '{"__proto__":{"ok":true},')), /__proto__/],
    [
      "denominators without end",
      { ...gather, shares: Array.from({ length: 12 }, (_, i) => `1/${10n ** 399n + BigInt(2 * i + 1)}`) },
      /common denominator is too long/,
    ],
    ["a root where there is none", { ...gather, root: "a" }, /all_gather has none/],
  ])("refuses %s", (_, certificate, reason) => {
    expect(faultsOf(sealCertificate(certificate as Certificate)).join("; ")).toMatch(reason);
  });

  const trees = gather.schedule.kind === "trees" ? gather.schedule.trees : [];
  it.each<[string, unknown, RegExp]>([
    ["a missing tree", trees.slice(1), /from a to a it does not carry its share of 1\/3/],
    ["a tree that misses a rank", [{ ...trees[0], down: [["a", "b"]] }, ...trees.slice(1)], /one parent/],
    [
      "a rank with two parents",
      [
        {
          ...trees[0],
          down: [
            ["a", "b"],
            ["c", "b"],
          ],
        },
        ...trees.slice(1),
      ],
      /one parent/,
    ],
    [
      "a circle",
      [
        {
          ...trees[0],
          down: [
            ["c", "b"],
            ["b", "c"],
          ],
        },
        ...trees.slice(1),
      ],
      /does not hang on the root/,
    ],
    [
      "a route over no edge",
      [
        {
          ...trees[0],
          down: [
            ["a", "a"],
            ["a", "c"],
          ],
        },
        ...trees.slice(1),
      ],
      /no edge/,
    ],
    ["a weight of 0", [{ ...trees[0], weight: "0" }, ...trees.slice(1)], /above 0/],
    [
      "a busier link",
      [
        {
          ...trees[0],
          down: [
            ["a", "b"],
            ["b", "c"],
          ],
        },
        ...trees.slice(1),
      ],
      /schedule takes 1\/15/,
    ],
  ])("refuses a schedule with %s", (_, changed, reason) => {
    const certificate = { ...gather, schedule: { kind: "trees", trees: changed } } as Certificate;
    expect(faultsOf(sealCertificate(certificate)).join("; ")).toMatch(reason);
  });

  it("tells pairs of ranks apart whose names, put together, are the same", () => {
    const nodes = ["a", "b to c", "a to b", "c"].map((id) => ({ id, kind: "rank" as const }));
    const edges = nodes.flatMap(({ id: from }) =>
      nodes.filter(({ id }) => id !== from).map(({ id: to }) => ({ from, to, capacity: "1" })),
    );
    const paths = edges.map(({ from, to }) => ({ weight: "1/4", route: [from, to] }));
    const certificate = {
      ...all,
      network: { nodes, edges },
      secondsPerGB: "1/4",
      witness: { kind: "lengths" as const, lengths: edges.map(({ from, to }) => ({ from, to, length: "1" })) },
    };
    const faultsWith = (some: typeof paths) =>
      faultsOf(sealCertificate({ ...certificate, schedule: { kind: "paths", paths: some } }));
    expect(faultsWith(paths)).toEqual([]);
    const left = paths.filter(({ route: [from, to] }) => !(from === "a" && to === "b to c"));
    expect(faultsWith(left)[0]).toContain("from a to b to c it does not carry its share of 1/4");
  });

  it.each([null, 7, [], "x", { schemaVersion: 1 }, { ...gather, network: { nodes: [], edges: [] } }])(
    "refuses %j as a whole",
    (value) => {
      expect(checkCertificate(value).ok).toBe(false);
    },
  );
});
