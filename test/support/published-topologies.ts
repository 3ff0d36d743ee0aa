/** The topologies of test/fixtures/synthesis, whose exact optima an independent program computed; its README says more. */
import { readFileSync } from "node:fs";
import { gunzipSync } from "node:zlib";
import type { Network } from "../../src/authoring/certificate/index.ts";
import { Rational } from "../../src/authoring/synthesis/index.ts";

export interface PublishedTopology {
  readonly name: string;
  readonly ranks: number;
  readonly capacity_scale: number;
  readonly nodes: Readonly<Record<string, "gpu" | "switch">>;
  readonly edges: readonly (readonly [string, string, number])[];
  readonly allgather: { readonly inv_x: string };
  readonly reducescatter: { readonly inv_x: string };
  readonly broadcast: { readonly root: string; readonly time_per_GB: string };
  readonly reduce: { readonly root: string; readonly time_per_GB: string };
  readonly scatter: { readonly root: string; readonly lam_per_block: string };
  readonly allreduce_time_per_GB: { readonly lower_bound: string; readonly optimum?: string };
  readonly alltoall?: { readonly theta: string };
  readonly fixed_k: Readonly<Record<string, string>>;
  readonly bfb?: { readonly steps: number; readonly inv_x: string; readonly per_step: readonly string[] } | null;
}

const file = new URL("../fixtures/synthesis/topologies.json.gz", import.meta.url);
const { topologies } = JSON.parse(gunzipSync(readFileSync(file)).toString()) as {
  topologies: readonly PublishedTopology[];
};
export const publishedTopologies = topologies;

export function publishedNetwork({ nodes, edges, capacity_scale }: PublishedTopology): Network {
  return {
    nodes: Object.entries(nodes).map(([id, kind]) => ({ id, kind: kind === "gpu" ? "rank" : "relay" })),
    edges: edges.map(([from, to, capacity]) => ({
      from,
      to,
      capacity: new Rational(BigInt(capacity), BigInt(capacity_scale)).toString(),
    })),
  };
}
