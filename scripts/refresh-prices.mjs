/**
 * Looks the prices of src/planner/cost/price-rows.ts up again and writes those that changed, with this month's date.
 *
 *   node scripts/refresh-prices.mjs [--dry-run]
 *
 * Azure's retail prices (https://prices.azure.com/api/retail/prices) and AWS's offers of single instance types
 * (https://b0.p.awsstatic.com/pricing/2.0/meteredUnitMaps, what its price page reads) are public and need no account. Lists
 * without such an interface are printed with their address, to be checked by hand.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const FILE = new URL("../src/planner/cost/price-rows.ts", import.meta.url);
const AZURE = "https://prices.azure.com/api/retail/prices";
const AWS =
  "https://b0.p.awsstatic.com/pricing/2.0/meteredUnitMaps/ec2/USD/current/ec2-ondemand-without-sec-sel/US%20East%20(N.%20Virginia)/Linux/index.json";

/** The on-demand Linux price of a size in Azure's answer; undefined where it is not offered. */
export function azurePrice(answer, name) {
  const offers = (answer.Items ?? []).filter(
    (item) =>
      item.armSkuName === name &&
      item.type === "Consumption" &&
      item.unitOfMeasure === "1 Hour" &&
      !/Windows/.test(item.productName ?? "") &&
      !/Spot|Low Priority/.test(item.skuName ?? ""),
  );
  const prices = offers.map(({ retailPrice }) => retailPrice).filter((price) => price > 0);
  return prices.length === 0 ? undefined : Math.min(...prices);
}

/** The same in AWS's table of a region. */
export function awsPrice(answer, name) {
  for (const region of Object.values(answer.regions ?? {}))
    for (const row of Object.values(region))
      if (row["Instance Type"] === name && Number(row.price) > 0) return Number(row.price);
  return undefined;
}

/** The text of price-rows.ts with one row's price and date replaced. */
export function withPrice(text, name, price, date) {
  const escaped = name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const row = new RegExp(`(\\["${escaped}", "[^"]+", \\d+, )([\\d.]+)(, "[^"]*", ")(\\d{4}-\\d{2})("\\])`);
  const match = row.exec(text);
  if (match === null) throw new Error(`${name} has no row`);
  return text.replace(row, (_, head, _old, middle, _date, tail) => `${head}${price}${middle}${date}${tail}`);
}

/** Names of the rows of a provider. */
export function namesOf(text, provider) {
  const block = text.slice(text.indexOf(`provider: "${provider}"`));
  const rows = block.slice(0, block.indexOf("\n    ],"));
  return [...rows.matchAll(/\["([^"]+)", "[^"]+", \d+, ([\d.]+),/g)].map(([, name, price]) => [name, Number(price)]);
}

async function fetchJson(address) {
  const response = await fetch(address, { signal: AbortSignal.timeout(60_000) });
  if (!response.ok) throw new Error(`${address} answers ${response.status}`);
  return response.json();
}

async function main(isDry) {
  let text = readFileSync(FILE, "utf8");
  const date = new Date().toISOString().slice(0, 7);
  const aws = await fetchJson(AWS);
  const lookUp = {
    aws: async (name) => awsPrice(aws, name),
    azure: async (name) =>
      azurePrice(
        await fetchJson(
          `${AZURE}?$filter=${encodeURIComponent(`armRegionName eq 'eastus' and armSkuName eq '${name}'`)}`,
        ),
        name,
      ),
  };
  for (const [provider, price] of Object.entries(lookUp)) {
    for (const [name, before] of namesOf(text, provider)) {
      const now = await price(name);
      if (now === undefined) process.stdout.write(`${provider} ${name}: not in the list; kept at ${before}\n`);
      else {
        process.stdout.write(`${provider} ${name}: ${before} -> ${now}\n`);
        text = withPrice(text, name, now, date);
      }
    }
  }
  for (const [, provider, source] of text.matchAll(/provider: "(\w+)",\s+region: "[^"]*",\s+source: "([^"]+)"/g))
    if (!(provider in lookUp)) process.stdout.write(`${provider}: check by hand at ${source}\n`);
  if (!isDry) writeFileSync(FILE, text);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await main(process.argv.includes("--dry-run"));
