/**
 * Looks the prices of src/planner/cost/price-rows.ts up again and writes those that changed, with this month's date.
 *
 *   npm run build && node scripts/refresh-prices.mjs [--dry-run] [--file FILE] [--timeout SECONDS] [--aws URL] [--azure URL]
 *
 * Azure's retail prices (https://prices.azure.com/api/retail/prices) and AWS's offers of single instance types
 * (https://b0.p.awsstatic.com/pricing/2.0/meteredUnitMaps, what its price page reads) are public and need no account; --aws and
 * --azure name mirrors of them. Lists without such an interface are printed with their address, to be checked by hand. A price
 * that is not within a factor of four of the one before is printed and not taken. Where a list cannot be reached, is too slow
 * (60 s by default), too large or no such list, nothing is written and the exit code is 1.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";

const FILE = fileURLToPath(new URL("../src/planner/cost/price-rows.ts", import.meta.url));
const AZURE = "https://prices.azure.com/api/retail/prices";
const AWS =
  "https://b0.p.awsstatic.com/pricing/2.0/meteredUnitMaps/ec2/USD/current/ec2-ondemand-without-sec-sel/US%20East%20(N.%20Virginia)/Linux/index.json";
/** AWS's table of a region has some megabytes, a page of Azure's a hundred rows. */
const MAX_ANSWER_BYTES = 64 * 1024 * 1024;
const MAX_PAGES = 20;
/** A list price is cut or raised, but not by more than this at once: a larger step is another unit or another product. */
const MAX_STEP = 4;

const isRecord = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** The on-demand Linux price of a size in Azure's answer; undefined where it is not offered. @throws Error where it is no such answer */
export function azurePrice(answer, name) {
  if (!isRecord(answer) || !Array.isArray(answer.Items)) throw new Error("is no list of prices: it has no Items");
  const offers = answer.Items.filter(
    (item) =>
      isRecord(item) &&
      item.armSkuName === name &&
      item.type === "Consumption" &&
      item.unitOfMeasure === "1 Hour" &&
      (item.currencyCode ?? "USD") === "USD" &&
      !/Windows/.test(item.productName ?? "") &&
      !/Spot|Low Priority/.test(item.skuName ?? ""),
  );
  const prices = offers.map(({ retailPrice }) => retailPrice).filter((price) => Number.isFinite(price) && price > 0);
  return prices.length === 0 ? undefined : Math.min(...prices);
}

/** The same in AWS's table of a region. */
export function awsPrice(answer, name) {
  if (!isRecord(answer) || !isRecord(answer.regions)) throw new Error("is no list of prices: it has no regions");
  for (const region of Object.values(answer.regions))
    for (const row of isRecord(region) ? Object.values(region) : []) {
      const price = isRecord(row) && row["Instance Type"] === name ? Number(row.price) : Number.NaN;
      if (Number.isFinite(price) && price > 0) return price;
    }
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

/** The body of an answer as text. @throws Error for one that is too large, as soon as it is */
async function bodyOf(response, maxBytes) {
  const tooLarge = `answers with more than ${maxBytes} bytes`;
  if (Number(response.headers.get("content-length")) > maxBytes) throw new Error(tooLarge);
  const parts = [];
  let length = 0;
  for await (const part of response.body ?? []) {
    length += part.length;
    if (length > maxBytes) throw new Error(tooLarge);
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

/** What went wrong, in words: the reason of a failed fetch stands in its cause. */
function reasonOf(error, timeoutMs) {
  if (error.name === "TimeoutError") return `does not answer within ${timeoutMs / 1e3} s`;
  if (error instanceof SyntaxError) return `does not answer with JSON: ${error.message}`;
  const cause = error.cause?.code ?? error.cause?.message;
  return cause === undefined ? error.message : `cannot be reached: ${cause}`;
}

/** One answer, read by `read`. @throws Error that names the address */
async function ask(address, { timeoutMs, maxBytes }, read) {
  // Ended where the rest of an answer is not wanted, so that its connection is not kept.
  const abandon = new AbortController();
  // Not AbortSignal.any() of a timeout: Node 20 may collect that as garbage, and then it never comes.
  const late = setTimeout(() => abandon.abort(new DOMException("the answer is late", "TimeoutError")), timeoutMs);
  try {
    const response = await fetch(address, { signal: abandon.signal });
    if (!response.ok) throw new Error(`answers ${response.status}`);
    return read(JSON.parse(await bodyOf(response, maxBytes)));
  } catch (error) {
    throw new Error(`${address} ${reasonOf(error, timeoutMs)}`, { cause: error });
  } finally {
    clearTimeout(late);
    abandon.abort();
  }
}

/** Azure's price of a size, over the pages of its answer. */
async function azureLookUp(list, name, limits) {
  const filter = encodeURIComponent(`armRegionName eq 'eastus' and armSkuName eq '${name}'`);
  const prices = [];
  let address = `${list}?$filter=${filter}`;
  for (let page = 0; ; page++) {
    if (page === MAX_PAGES) throw new Error(`${list} answers on more than ${MAX_PAGES} pages for ${name}`);
    const { price, next } = await ask(address, limits, (answer) => ({
      price: azurePrice(answer, name),
      next: answer.NextPageLink ?? "",
    }));
    if (price !== undefined) prices.push(price);
    if (next === "") break;
    if (!URL.canParse(next) || new URL(next).origin !== new URL(list).origin)
      throw new Error(`${address} goes on at ${JSON.stringify(next)}, which is not a page of it`);
    address = next;
  }
  return prices.length === 0 ? undefined : Math.min(...prices);
}

/**
 * The text of price-rows.ts with the prices that the lists have now, and a line for each row.
 * @throws Error where a list cannot be read
 */
export async function refreshed(
  text,
  { aws = AWS, azure = AZURE, date, timeoutMs = 60_000, maxBytes = MAX_ANSWER_BYTES },
) {
  const limits = { timeoutMs, maxBytes };
  const awsTable = await ask(aws, limits, (answer) => {
    awsPrice(answer, "");
    return answer;
  });
  const lookUp = {
    aws: async (name) => awsPrice(awsTable, name),
    azure: (name) => azureLookUp(azure, name, limits),
  };
  const lines = [];
  for (const [provider, price] of Object.entries(lookUp)) {
    for (const [name, before] of namesOf(text, provider)) {
      const now = await price(name);
      if (now === undefined) lines.push(`${provider} ${name}: not in the list; kept at ${before}`);
      else if (now > before * MAX_STEP || now < before / MAX_STEP)
        lines.push(`${provider} ${name}: ${now} in the list; kept at ${before}, to be checked by hand`);
      else {
        lines.push(`${provider} ${name}: ${before} -> ${now}`);
        text = withPrice(text, name, now, date);
      }
    }
  }
  for (const [, provider, source] of text.matchAll(/provider: "(\w+)",\s+region: "[^"]*",\s+source: "([^"]+)"/g))
    if (!(provider in lookUp)) lines.push(`${provider}: check by hand at ${source}`);
  return { text, lines };
}

async function main() {
  const { flagsOf, integer } = await import("../dist/apps/bench/script-flags.js");
  const { InvalidArgumentError } = await import("../dist/core/index.js");
  const options = {
    "dry-run": { type: "boolean", default: false },
    file: { type: "string", default: FILE },
    timeout: { type: "string", default: "60" },
    aws: { type: "string", default: AWS },
    azure: { type: "string", default: AZURE },
  };
  const { file, isDry, ...sources } = flagsOf(import.meta.url, { options }, ({ values }) => {
    for (const name of ["aws", "azure"])
      if (!URL.canParse(values[name]) || !/^https?:$/.test(new URL(values[name]).protocol))
        throw new InvalidArgumentError(`--${name}`, values[name], "an address that begins with https:// or http://");
    const timeoutMs = integer(values.timeout, "--timeout") * 1e3;
    return { file: values.file, isDry: values["dry-run"], timeoutMs, aws: values.aws, azure: values.azure };
  });
  try {
    const before = readFileSync(file, "utf8");
    const { text, lines } = await refreshed(before, { ...sources, date: new Date().toISOString().slice(0, 7) });
    process.stdout.write(`${lines.join("\n")}\n`);
    if (!isDry && text !== before) writeFileSync(file, text);
  } catch (error) {
    process.stderr.write(`refresh-prices.mjs: ${error.message}; nothing was written\n`);
    process.exitCode = 1;
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) await main();
