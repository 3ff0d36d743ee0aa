/**
 * Prices of cloud instances: a dated catalogue, replaceable by a file of the user's. On-demand list prices in US dollars
 * an hour, in the region named; they change, so every row has its date. The rows were written down by hand from what the
 * providers' public lists said around that date, not fetched from them: a starting point, to be checked before money moves.
 */

import { z } from "zod";
import { deepFreeze } from "../../core/index.ts";
import { checkSchema, readJsonFile } from "../../foreign/formats/index.ts";
import { findPart, type Inventory, partByKey } from "../../machine/topology/index.ts";
import type { ShardingPlan } from "../plan.ts";

export const PRICES_SCHEMA_VERSION = 1;
/** Larger files are no catalogue: a row has some 200 bytes. */
const MAX_CATALOGUE_BYTES = 16 * 1024 * 1024;

export const instanceSchema = z.object({
  provider: z.string().min(1),
  name: z.string().min(1),
  /** Key of a part (`h100`, `mi300x`), see topology/parts. */
  part: z.string().min(1),
  numDevices: z.number().int().positive(),
  /** What joins the devices, in the provider's words. */
  interconnect: z.string(),
  region: z.string(),
  pricePerHour: z.number().positive(),
  kind: z.enum(["on-demand", "spot", "reserved-1y", "reserved-3y"]),
  /** When the price was looked up: YYYY-MM. */
  date: z.string().regex(/^\d{4}-\d{2}$/),
});
export type Instance = z.infer<typeof instanceSchema>;

export const priceCatalogueSchema = z.object({
  schemaVersion: z.literal(PRICES_SCHEMA_VERSION),
  currency: z.literal("USD"),
  instances: z.array(instanceSchema).min(1),
});
export type PriceCatalogue = z.infer<typeof priceCatalogueSchema>;

function row(
  provider: string,
  name: string,
  part: string,
  numDevices: number,
  pricePerHour: number,
  interconnect: string,
  region: string,
  date: string,
): Instance {
  return { provider, name, part, numDevices, interconnect, region, pricePerHour, kind: "on-demand", date };
}

const AWS = "us-east-1";
const GCP = "us-central1";
const AZURE = "eastus";

/** The providers' public price lists, at the dates given. */
export const DEFAULT_PRICES: PriceCatalogue = {
  schemaVersion: PRICES_SCHEMA_VERSION,
  currency: "USD",
  instances: [
    row("aws", "p5.48xlarge", "h100", 8, 55.04, "NVSwitch", AWS, "2025-06"),
    row("aws", "p5en.48xlarge", "h200", 8, 63.3, "NVSwitch", AWS, "2025-06"),
    row("aws", "p4d.24xlarge", "a100-40", 8, 21.96, "NVSwitch", AWS, "2025-06"),
    row("aws", "p4de.24xlarge", "a100-80", 8, 27.45, "NVSwitch", AWS, "2025-06"),
    row("aws", "g5.xlarge", "a10g", 1, 1.006, "none", AWS, "2025-01"),
    row("aws", "g5.48xlarge", "a10g", 8, 16.288, "PCIe", AWS, "2025-01"),
    row("aws", "g6.xlarge", "l4", 1, 0.8048, "none", AWS, "2025-01"),
    row("aws", "g6.48xlarge", "l4", 8, 13.35, "PCIe", AWS, "2025-01"),
    row("aws", "g6e.xlarge", "l40s", 1, 1.861, "none", AWS, "2025-01"),
    row("aws", "g6e.48xlarge", "l40s", 8, 30.131, "PCIe", AWS, "2025-01"),
    row("aws", "g4dn.xlarge", "t4", 1, 0.526, "none", AWS, "2025-01"),
    row("aws", "trn1.32xlarge", "trainium1", 16, 21.5, "NeuronLink", AWS, "2025-01"),
    row("aws", "inf2.xlarge", "inferentia2", 1, 0.7582, "none", AWS, "2025-01"),
    row("aws", "inf2.48xlarge", "inferentia2", 12, 12.9813, "NeuronLink", AWS, "2025-01"),
    row("gcp", "a3-highgpu-8g", "h100", 8, 88.49, "NVSwitch", GCP, "2025-01"),
    row("gcp", "a2-highgpu-1g", "a100-40", 1, 3.67, "none", GCP, "2025-01"),
    row("gcp", "a2-ultragpu-8g", "a100-80", 8, 40.55, "NVSwitch", GCP, "2025-01"),
    row("gcp", "g2-standard-4", "l4", 1, 0.71, "none", GCP, "2025-01"),
    row("gcp", "ct5lp-hightpu-4t", "tpu-v5e", 4, 4.8, "ICI", GCP, "2025-01"),
    row("gcp", "ct5p-hightpu-4t", "tpu-v5p", 4, 16.8, "ICI", GCP, "2025-01"),
    row("azure", "Standard_ND96isr_H100_v5", "h100", 8, 98.32, "NVSwitch", AZURE, "2025-01"),
    row("azure", "Standard_ND96asr_v4", "a100-40", 8, 27.2, "NVSwitch", AZURE, "2025-01"),
    row("azure", "Standard_ND96amsr_A100_v4", "a100-80", 8, 32.77, "NVSwitch", AZURE, "2025-01"),
    row("azure", "Standard_NC24ads_A100_v4", "a100-80", 1, 3.67, "none", AZURE, "2025-01"),
    row("azure", "Standard_ND96isr_MI300X_v5", "mi300x", 8, 48.0, "xGMI", AZURE, "2025-01"),
  ],
};

/**
 * Reads a catalogue of the user's: JSON of `{schemaVersion: 1, currency: "USD", instances: [...]}`.
 * @throws FormatError naming the field
 */
export function readPrices(path: string): PriceCatalogue {
  return checkSchema(priceCatalogueSchema, readJsonFile(path, MAX_CATALOGUE_BYTES), path, "price catalogue");
}

/** The cheapest instances that hold as many devices of these parts as a plan uses, and how many of them. */
export function instancesFor(
  plan: ShardingPlan,
  inventory: Inventory,
  prices: PriceCatalogue = DEFAULT_PRICES,
): readonly { readonly instance: Instance; readonly count: number; readonly pricePerHour: number }[] {
  const used = new Set(plan.ranks.map((rank) => rank.deviceId));
  const devices = inventory.devices.filter((device) => used.has(device.id));
  const [first] = devices;
  if (first === undefined || devices.some((device) => device.name !== first.name)) return [];
  const { family, name } = first;
  const { tp, cp, ep } = plan.mesh.axes;
  const perBlock = tp * cp * ep;
  const key = findPart(family, name)?.key;
  return (
    prices.instances
      .filter((instance) => key !== undefined && (instance.part === key || partByKey(instance.part)?.name === name))
      // A pipeline stage of a replica stays within one instance: its collectives need the fast links.
      .filter((instance) => instance.numDevices >= perBlock)
      .map((instance) => {
        const count = Math.ceil(used.size / (perBlock * Math.floor(instance.numDevices / perBlock)));
        return { instance, count, pricePerHour: count * instance.pricePerHour };
      })
      .sort((a, b) => a.pricePerHour - b.pricePerHour || a.count - b.count)
  );
}

/** What is paid for: trained tokens; generated ones, the prefill of their prompts included; read ones where none are. */
function tokensPerSecond({ estimates, workload }: ShardingPlan): number {
  if (estimates.kind === "training") return estimates.tokensPerSecond;
  const tokens = workload.batch * (workload.outputTokens > 0 ? workload.outputTokens : workload.contextTokens);
  return estimates.requestMs > 0 ? (tokens * 1e3) / estimates.requestMs : 0;
}

/** Fills a plan's price and cost in, where the catalogue has its devices; the plan as it was otherwise. */
export function withPrice(
  plan: ShardingPlan,
  inventory: Inventory,
  prices: PriceCatalogue = DEFAULT_PRICES,
): ShardingPlan {
  const [cheapest] = instancesFor(plan, inventory, prices);
  if (cheapest === undefined) return plan;
  const { estimates } = plan;
  const perSecond = tokensPerSecond(plan);
  const { instance, count, pricePerHour } = cheapest;
  const priced = {
    ...estimates,
    pricePerHour,
    ...(perSecond > 0 ? { costPerMillionTokens: (pricePerHour / 3600 / perSecond) * 1e6 } : {}),
  };
  const note = `price: ${count} x ${instance.provider} ${instance.name}, ${instance.kind}, ${instance.region}, as of ${instance.date}`;
  return deepFreeze({ ...plan, estimates: priced, notes: [...plan.notes, note] });
}
