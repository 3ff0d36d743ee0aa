/**
 * Prices of cloud instances: a dated catalogue, replaceable by a file of the user's. On-demand list prices in US dollars
 * an hour, in the region named; they change, so every row has its date. The rows were written down by hand from what the
 * providers' public lists said around that date, each with its list; scripts/refresh-prices.mjs looks up those that can be
 * looked up. A starting point, to be checked before money moves.
 */

import { z } from "zod";
import { deepFreeze, printableLine } from "../../core/index.ts";
import { checkSchema, readJsonFile } from "../../foreign/formats/index.ts";
import { cloudInstance, findPart, type Inventory, partByKey } from "../../machine/topology/index.ts";
import type { ShardingPlan } from "../plan.ts";
import { PRICE_LISTS } from "./price-rows.ts";

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
  /** The list that it stands in. */
  source: z.string().optional(),
  /** Any number of its devices is rented, at this price each; without it, the whole host is. */
  perDevice: z.boolean().optional(),
});
export type Instance = z.infer<typeof instanceSchema>;

export const priceCatalogueSchema = z.object({
  schemaVersion: z.literal(PRICES_SCHEMA_VERSION),
  currency: z.literal("USD"),
  instances: z.array(instanceSchema).min(1),
});
export type PriceCatalogue = z.infer<typeof priceCatalogueSchema>;

/** The providers' public price lists, at the dates given. */
export const DEFAULT_PRICES: PriceCatalogue = {
  schemaVersion: PRICES_SCHEMA_VERSION,
  currency: "USD",
  instances: PRICE_LISTS.flatMap(({ provider, region, source, perDevice = false, rows }) =>
    rows.map(([name, part, numDevices, pricePerHour, interconnect, date]) => ({
      provider,
      name,
      part,
      numDevices,
      interconnect,
      region,
      pricePerHour,
      kind: "on-demand" as const,
      date,
      source,
      ...(perDevice ? { perDevice } : {}),
    })),
  ),
};

/**
 * Reads a catalogue of the user's: JSON of `{schemaVersion: 1, currency: "USD", instances: [...]}`.
 * @throws FormatError naming the field
 */
export function readPrices(path: string): PriceCatalogue {
  return checkSchema(priceCatalogueSchema, readJsonFile(path, MAX_CATALOGUE_BYTES), path, "price catalogue");
}

/** What is rented for a plan. */
export interface Rental {
  readonly instance: Instance;
  /** Hosts, or devices where the provider rents these. */
  readonly count: number;
  readonly pricePerHour: number;
  /** Devices that are paid for and have nothing to do. */
  readonly idleDevices: number;
}

/** The instance that an inventory is, where it is one of a provider's by name; then no other may stand for it. */
function instanceOf({ environment }: Inventory): string | undefined {
  const named = environment?.["instance"];
  if (typeof named === "string") return named;
  const preset = environment?.["preset"];
  return typeof preset === "string" && /^(trn|inf)\d\.\d+xlarge$/.test(preset) ? preset : undefined;
}

const plainName = ({ name }: Instance) => cloudInstance(name)?.name ?? name.toLowerCase();

/**
 * The instances that hold a plan's devices as the plan timed them, cheapest first; the named one alone where the hardware is one. What was timed over links inside a host
 * is rented inside one: a replica in serving, every rank in training; plans over several hosts rent as many, each whole.
 */
export function instancesFor(
  plan: ShardingPlan,
  inventory: Inventory,
  prices: PriceCatalogue = DEFAULT_PRICES,
): readonly Rental[] {
  const used = new Set(plan.ranks.map((rank) => rank.deviceId));
  const devices = inventory.devices.filter((device) => used.has(device.id));
  const [first] = devices;
  if (first === undefined || devices.some((device) => device.name !== first.name)) return [];
  const { family, name } = first;
  const key = findPart(family, name)?.key;
  const perHost = new Map<number, number>();
  for (const node of inventory.topology.nodes)
    if (used.has(node.id)) perHost.set(node.host ?? 0, (perHost.get(node.host ?? 0) ?? 0) + 1);
  const numHosts = Math.max(1, perHost.size);
  const fullest = Math.max(1, ...perHost.values());
  const { dp } = plan.mesh.axes;
  const apart = numHosts === 1 && plan.workload.mode === "inference" ? dp : 1;
  // Devices that must be together, and how many times.
  const unit = numHosts > 1 ? fullest : Math.ceil(used.size / apart);
  const units = numHosts > 1 ? numHosts : Math.ceil(used.size / unit);
  const named = instanceOf(inventory);
  return prices.instances
    .filter((instance) => named === undefined || plainName(instance) === named)
    .filter((instance) => key !== undefined && (instance.part === key || partByKey(instance.part)?.name === name))
    .filter((instance) => instance.numDevices >= unit && !(instance.perDevice === true && numHosts > 1))
    .map((instance): Rental => {
      if (instance.perDevice === true)
        return { instance, count: used.size, pricePerHour: used.size * instance.pricePerHour, idleDevices: 0 };
      const count = numHosts > 1 ? numHosts : Math.ceil(units / Math.floor(instance.numDevices / unit));
      const idleDevices = count * instance.numDevices - used.size;
      return { instance, count, pricePerHour: count * instance.pricePerHour, idleDevices };
    })
    .sort((a, b) => a.pricePerHour - b.pricePerHour || a.count - b.count);
}

/** What is paid for: trained tokens; generated ones, the prefill of their prompts included; read ones where none are. */
function tokensPerSecond({ estimates, workload }: ShardingPlan): number {
  if (estimates.kind === "training") return estimates.tokensPerSecond;
  const tokens = workload.batch * (workload.outputTokens > 0 ? workload.outputTokens : workload.contextTokens);
  return estimates.requestMs > 0 ? (tokens * 1e3) / estimates.requestMs : 0;
}

/** Fills a plan's price and cost in, where the catalogue has its devices; a note says where it has none. */
export function withPrice(
  plan: ShardingPlan,
  inventory: Inventory,
  prices: PriceCatalogue = DEFAULT_PRICES,
): ShardingPlan {
  const [cheapest] = instancesFor(plan, inventory, prices);
  return cheapest === undefined ? unpriced(plan, inventory) : pricedAs(plan, cheapest);
}

function unpriced(plan: ShardingPlan, inventory: Inventory): ShardingPlan {
  const device = inventory.devices.find(({ id }) => id === plan.ranks[0]?.deviceId);
  if (device === undefined || device.family === "cpu") return plan;
  const names = [...new Set((plan.hardware ?? []).map(({ name }) => name))];
  const what = instanceOf(inventory) ?? (names.length > 1 ? `one machine with ${names.join(" and ")}` : device.name);
  const note = `price: none is known of ${printableLine(what)}; --prices FILE takes yours`;
  return deepFreeze({ ...plan, notes: [...plan.notes, note] });
}

/** Fills the price of a rental in, and the cost at it. */
export function pricedAs(plan: ShardingPlan, { instance, count, pricePerHour, idleDevices }: Rental): ShardingPlan {
  const { estimates } = plan;
  const perSecond = tokensPerSecond(plan);
  const priced = {
    ...estimates,
    pricePerHour,
    ...(perSecond > 0 ? { costPerMillionTokens: (pricePerHour / 3600 / perSecond) * 1e6 } : {}),
  };
  const note = `price: ${count} x ${instance.provider} ${instance.name}, ${instance.kind}, ${instance.region}, as of ${instance.date}${instance.source === undefined ? "" : ` (${instance.source})`}${idleDevices > 0 ? `; ${idleDevices} of its devices stay idle` : ""}`;
  return deepFreeze({ ...plan, estimates: priced, notes: [...plan.notes, note] });
}
