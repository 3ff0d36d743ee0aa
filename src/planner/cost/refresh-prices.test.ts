/** The script that looks prices up again, against a server of this process that answers as AWS's and Azure's lists do. */
import { readFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";

interface Sources {
  readonly aws: string;
  readonly azure: string;
  readonly date: string;
  readonly timeoutMs?: number;
  readonly maxBytes?: number;
}
interface Script {
  readonly azurePrice: (answer: object, name: string) => number | undefined;
  readonly awsPrice: (answer: object, name: string) => number | undefined;
  readonly withPrice: (text: string, name: string, price: number, date: string) => string;
  readonly namesOf: (text: string, provider: string) => readonly (readonly [string, number])[];
  readonly refreshed: (text: string, sources: Sources) => Promise<{ text: string; lines: readonly string[] }>;
}

const text = readFileSync(new URL("price-rows.ts", import.meta.url), "utf8");
const { azurePrice, awsPrice, withPrice, namesOf, refreshed } = (await import(
  new URL("../../../scripts/refresh-prices.mjs", import.meta.url).href
)) as Script;

/** A row of Azure's answer, as its documentation shows it (learn.microsoft.com, Azure Retail Prices REST API). */
const azureItem = (name: string, retailPrice: number, more: object = {}) => ({
  ...{ currencyCode: "USD", tierMinimumUnits: 0, retailPrice, unitPrice: retailPrice, armRegionName: "eastus" },
  ...{ location: "US East", effectiveStartDate: "2025-01-01T00:00:00Z", meterName: name, productName: "NC Series" },
  ...{ skuName: name, serviceName: "Virtual Machines", unitOfMeasure: "1 Hour", type: "Consumption", armSkuName: name },
  ...more,
});
const azurePage = (Items: readonly unknown[], NextPageLink: string | null = null) => ({
  ...{ BillingCurrency: "USD", CustomerEntityId: "Default", CustomerEntityType: "Retail" },
  ...{ Items, NextPageLink, Count: Items.length },
});
/** AWS's table, as its price page reads it: prices are text. */
const awsTable = (prices: Readonly<Record<string, string>>) => ({
  manifest: { serviceId: "ec2", currencyCode: "USD", source: "ec2" },
  sets: {},
  regions: {
    "US East (N. Virginia)": Object.fromEntries(
      Object.entries(prices).map(([name, price]) => [
        name,
        { rateCode: "X", price, Location: "US East (N. Virginia)", "Instance Type": name, Storage: "EBS only" },
      ]),
    ),
  },
});

const json = (response: ServerResponse, value: unknown) => response.end(JSON.stringify(value));
type Answer = (response: ServerResponse, size: string) => void;
let answers: { aws: Answer; azure: Answer };
let asked: string[];
let origin = "";
const server = createServer((request, response) => {
  const url = new URL(request.url ?? "", origin);
  const size = /armSkuName eq '([^']+)'/.exec(url.searchParams.get("$filter") ?? "")?.[1] ?? url.pathname;
  asked.push(size);
  answers[url.pathname === "/aws" ? "aws" : "azure"](response, size);
});
const refresh = (more: Partial<Sources> = {}) =>
  refreshed(text, { aws: `${origin}/aws`, azure: `${origin}/azure`, date: "2027-01", ...more });

beforeAll(async () => {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});
beforeEach(() => {
  asked = [];
  answers = {
    aws: (response) => json(response, awsTable({ "p5.48xlarge": "50.5000000000", "g6.xlarge": "99.0" })),
    azure: (response, size) =>
      json(response, azurePage(size === "Standard_ND96isr_H100_v5" ? [azureItem(size, 90.25)] : [])),
  };
});

describe("refresh-prices", () => {
  it("reads both lists, passes over spot, Windows and other currencies, and changes one row", () => {
    const Items = [
      azureItem("X", 1, { skuName: "X Spot" }),
      azureItem("X", 2, { productName: "X Windows" }),
      azureItem("X", 3, { currencyCode: "EUR" }),
      azureItem("X", 4, { type: "Reservation" }),
      null,
    ];
    expect(azurePrice({ Items }, "X")).toBeUndefined();
    expect(azurePrice({ Items: [...Items, azureItem("X", 5)] }, "X")).toBe(5);
    expect(awsPrice(awsTable({ X: "3.5000000000", Y: "n/a" }), "X")).toBe(3.5);
    expect(awsPrice(awsTable({ X: "3.5000000000", Y: "n/a" }), "Y")).toBeUndefined();
    expect(namesOf(text, "azure").map(([name]) => name)).toContain("Standard_NC40ads_H100_v5");
    expect(namesOf(text, "aws").every(([name]) => !name.startsWith("Standard"))).toBe(true);
    expect(withPrice(text, "g6.xlarge", 0.9, "2027-01")).toContain('["g6.xlarge", "l4", 1, 0.9, "none", "2027-01"]');
    expect(() => withPrice(text, "no-such", 1, "2027-01")).toThrow("no-such");
  });

  it("writes what the lists say, keeps what they lack and what is beyond belief, and asks Azure for each size", async () => {
    const { text: now, lines } = await refresh();
    expect(now).toContain('["p5.48xlarge", "h100", 8, 50.5, "NVSwitch", "2027-01"]');
    expect(now).toContain('["Standard_ND96isr_H100_v5", "h100", 8, 90.25, "NVSwitch", "2027-01"]');
    const changed = now.split("\n").filter((line, at) => line !== text.split("\n")[at]);
    expect(changed).toHaveLength(2);
    expect(lines).toContain("aws g6.xlarge: 99 in the list; kept at 0.8048, to be checked by hand");
    expect(lines).toContain("azure Standard_ND96asr_v4: not in the list; kept at 27.2");
    expect(lines.join("\n")).toMatch(/^runpod: check by hand at https:/m);
    expect(asked).toEqual(["/aws", ...namesOf(text, "azure").map(([name]) => name)]);
  });

  it("follows the pages of an answer, and no other address", async () => {
    const [[size = ""] = []] = namesOf(text, "azure");
    answers.azure = (response, name) =>
      json(response, name === "/more" ? azurePage([azureItem(size, 80)]) : azurePage([], `${origin}/more`));
    expect((await refresh()).lines).toContain(`azure ${size}: 98.32 -> 80`);
    for (const next of ["http://elsewhere.invalid/prices", "nonsense"]) {
      answers.azure = (response) => json(response, azurePage([], next));
      await expect(refresh()).rejects.toThrow(`goes on at "${next}", which is not a page of it`);
    }
    answers.azure = (response) => json(response, azurePage([], `${origin}/more`));
    await expect(refresh()).rejects.toThrow(/answers on more than 20 pages for Standard_/);
  });

  it.each<[string, Answer, RegExp]>([
    ["not JSON", (response) => response.end("<html>"), /\/aws does not answer with JSON: /],
    ["half an answer", (response) => response.end('{"regions": {'), /\/aws does not answer with JSON: /],
    ["another document", (response) => json(response, []), /\/aws is no list of prices: it has no regions/],
    ["an error", (response) => response.writeHead(503).end(), /\/aws answers 503/],
    ["a broken connection", (response) => response.destroy(), /\/aws cannot be reached: /],
    ["silence", () => undefined, /\/aws does not answer within 0\.3 s/],
    ["an end that never comes", (response) => response.write('{"regions":'), /\/aws does not answer within 0\.3 s/],
    [
      "too much",
      (response) => {
        response.writeHead(200, { "content-length": 50_001 }).write("x");
      },
      /\/aws answers with more than 50000 bytes/,
    ],
    [
      "too much without saying so",
      (response) => {
        const more = () => {
          while (!response.destroyed && response.write(" ".repeat(10_000)));
          if (!response.destroyed) response.once("drain", more);
        };
        more();
      },
      /\/aws answers with more than 50000 bytes/,
    ],
  ])("refuses %s", async (_, answer, message) => {
    answers.aws = answer;
    // The others must not meet the deadline first where the machine is busy.
    const timeoutMs = message.source.includes("does not answer within") ? 300 : 20_000;
    await expect(refresh({ timeoutMs, maxBytes: 50_000 })).rejects.toThrow(message);
  });

  it("refuses an answer of Azure's that is no list, and an address where nobody is", async () => {
    answers.azure = (response) => json(response, { Items: null });
    await expect(refresh()).rejects.toThrow(/\/azure\?.* is no list of prices: it has no Items/);
    const gone = createServer();
    await new Promise<void>((resolve) => gone.listen(0, "127.0.0.1", resolve));
    const { port } = gone.address() as AddressInfo;
    await new Promise((resolve) => gone.close(resolve));
    const aws = `http://127.0.0.1:${port}/aws`;
    await expect(refresh({ aws })).rejects.toThrow(`${aws} cannot be reached: ECONNREFUSED`);
  });
});
