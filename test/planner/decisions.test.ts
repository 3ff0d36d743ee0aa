/** `chorale plan` as a decision tool: hardware compared, loads, costs, lists, and options that the mode would ignore. */
import { describe, expect, it } from "vitest";
import { parseSystem } from "../../src/machine/topology/index.ts";
import {
  disaggregate,
  largestLoad,
  modelPreset,
  nearestChanges,
  planModel,
  type ShardingPlan,
} from "../../src/planner/index.ts";
import { runCli } from "../helpers/cli.ts";

const plan = (...words: string[]) => runCli("plan", ...words);
const machine = (text: string) => {
  const found = parseSystem(text);
  if (found === undefined) throw new Error(`no ${text}`);
  return found;
};

describe("hardware compared", () => {
  it("shows what fits first, with layout, speed, price and what idles; says why the rest does not fit", async () => {
    const { code, out } = await plan(
      "qwen3-32b",
      "--hardware",
      "4x l40s,2x h100,rtx4090",
      "--context",
      "32k",
      "--batch",
      "16",
      "--quant",
      "fp8",
      "--kv",
      "fp8",
    );
    expect(code).toBe(0);
    const lines = out.trim().split("\n");
    expect(lines[0]).toMatch(/hardware +fits +layout +tokens\/s +first token +\$\/hour +\$\/M tokens +idle/);
    expect(lines[3]).toMatch(/^rtx4090 +no .*has 24\.0 GiB free/);
    const { out: json } = await plan(
      "qwen3-32b",
      "--hardware",
      "4x l40s,2x h100",
      "--context",
      "32k",
      "--batch",
      "16",
      "--quant",
      "fp8",
      "--kv",
      "fp8",
      "--json",
    );
    const { hardware } = JSON.parse(json) as { hardware: readonly { name: string; plan?: ShardingPlan }[] };
    expect(hardware.map(({ name }) => name).sort()).toEqual(["2x h100", "4x l40s"]);
  });

  it("ends with 1 when it fits none, and refuses what one machine alone can answer", async () => {
    expect((await plan("llama-3.1-405b", "--hardware", "rtx4090,l4")).code).toBe(1);
    expect((await plan("llama-3.1-8b", "--hardware", "l4,t4", "--export", "vllm")).code).toBe(2);
    expect((await plan("llama-3.1-8b", "--hardware", "l4,")).code).toBe(2);
  });
});

describe("prefill and decoding apart", () => {
  const request = {
    model: modelPreset("llama-3.1-70b"),
    inventory: machine("hgx-h100-8"),
    contextTokens: 4096,
    outputTokens: 512,
  };

  it("divides a machine so that no other number of these workers serves more, and keeps its promise", () => {
    const divided = disaggregate(request, { ttft: 2, tpot: 0.03 });
    if (divided === undefined) throw new Error("no division");
    const { prefill, decode, requestsPerSecond, idleDevices } = divided;
    expect(divided.ttftSeconds).toBeLessThanOrEqual(2);
    expect(divided.tpotSeconds).toBeLessThanOrEqual(0.03);
    expect(requestsPerSecond).toBeCloseTo(Math.min(prefill.requestsPerSecond, decode.requestsPerSecond), 9);
    const used = prefill.numWorkers * prefill.devicesPerWorker + decode.numWorkers * decode.devicesPerWorker;
    expect(used + idleDevices).toBe(8);
    const [reads, writes] = [prefill, decode].map((pool) => pool.requestsPerSecond / pool.numWorkers);
    for (let readers = 1; readers < 8; readers++) {
      const writers = Math.floor((8 - readers * prefill.devicesPerWorker) / decode.devicesPerWorker);
      expect(Math.min(readers * (reads ?? 0), writers * (writes ?? 0))).toBeLessThanOrEqual(
        requestsPerSecond * 1.000_001,
      );
    }
    // 80 layers, 8 KV heads of 128 in bf16, keys and values, 3,584 tokens of prompt.
    expect(divided.handoverBytes).toBe(80 * 8 * 128 * 2 * 2 * 3584);
    expect(disaggregate(request, { ttft: 0.000_001 })).toBeUndefined();
  });

  it("serves more prompts where a cache holds most of them, and has nothing to divide on one GPU", () => {
    const short = { ...request, model: modelPreset("llama-3.1-8b") };
    const cold = disaggregate(short, { tpot: 0.02 })?.prefill;
    const warm = disaggregate({ ...short, prefixHits: 0.9 }, { tpot: 0.02 })?.prefill;
    const each = (pool: typeof cold) =>
      (pool?.requestsPerSecond ?? 0) / ((pool?.numWorkers ?? 1) * (pool?.devicesPerWorker ?? 1));
    expect(each(warm)).toBeGreaterThan(3 * each(cold));
    expect(() => disaggregate({ ...short, inventory: machine("h100") })).toThrow(/at least two accelerators/);
    expect(() => disaggregate({ ...short, batch: 4 })).toThrow(/batches of workers are searched/);
    expect(() => disaggregate({ ...short, outputTokens: 0 })).toThrow(/nothing to decode/);
    expect(() => disaggregate({ ...short, train: "lora" })).toThrow(/only serving has prompts/);
  });

  it("answers on the command line", async () => {
    const at = ["llama-3.1-8b", "--hardware", "hgx-h100-8", "--context", "4k", "--output", "512", "--disaggregate"];
    const { code, out } = await plan(...at, "--slo", "ttft=1,tpot=0.02");
    expect(code).toBe(0);
    expect(out).toMatch(/^prefill +\d+ x 1 device[\s\S]*decode +\d+ x[\s\S]*together/);
    expect((await plan(...at, "--slo", "tpot=0.000001")).code).toBe(1);
    expect((await plan(...at, "--ranks", "4")).code).toBe(2);
  });
});

describe("loads", () => {
  const request = {
    model: modelPreset("llama-3.1-8b"),
    inventory: machine("h100"),
    contextTokens: 4096,
    outputTokens: 512,
  };

  it("is the largest that keeps the service level: one more user breaks it, and a stricter level takes fewer", () => {
    const load = largestLoad(request, { tpot: 0.03 });
    const strict = largestLoad(request, { tpot: 0.015 });
    if (load === undefined || strict === undefined) throw new Error("no load");
    expect(load.tpotSeconds).toBeLessThanOrEqual(0.03);
    expect(strict.users).toBeLessThan(load.users);
    const beyond = largestLoad(request, { tpot: 0.03 }, Math.ceil(load.users * 1.05) + 1);
    expect(beyond).toBeUndefined();
    expect(largestLoad(request, { ttft: 0.000_001 })).toBeUndefined();
  });

  it("answers on the command line", async () => {
    const at = ["llama-3.1-8b", "--hardware", "h100", "--context", "4k", "--output", "512"];
    const { out } = await plan(...at, "--slo", "ttft=0.5,tpot=0.05");
    const [, users, tpotMs, together] =
      /^(\d+) users at once keep[\s\S]+ ([\d.]+) ms a token, ([\d,]+) tokens\/s/.exec(out) ?? [];
    const perSecond = Number(together?.replaceAll(",", ""));
    expect(perSecond / ((Number(users) * 1e3) / Number(tpotMs))).toBeCloseTo(1, 1);
    expect(await plan(...at, "--slo", "tpot=0.000001")).toMatchObject({ code: 1 });
    expect((await plan(...at, "--users", "8")).out).toMatch(/^8 user/);
    expect(out).toMatch(/limited by {2}time a token: \d+ users take [\d.]+ s, 0\.05 s allowed/);
    expect(await plan(...at, "--slo", "speed=3")).toMatchObject({ code: 2 });
    expect(await plan(...at, "--users", "8", "--batch", "3")).toMatchObject({ code: 2 });
  });
});

describe("what bounds a load", () => {
  const at = ["llama-3.1-8b", "--context", "4k", "--output", "512"];

  it("is memory or time, with the numbers, the most that is served, and changes that serve it", async () => {
    const memory = await plan(...at, "--hardware", "h100", "--users", "150");
    expect(memory.code).toBe(1);
    expect(memory.out).toMatch(/^150 users at once are not served\nlimited by {2}memory: .* has 79\.6 GiB free/);
    const change = /would keep it here:\n {2}(.*?) {2,}/.exec(memory.out)?.[1] ?? "";
    const changed = await plan(...at, "--hardware", "h100", "--users", "150", ...change.split(" "));
    expect([change, changed.code]).toEqual([expect.stringMatching(/^--/), 0]);
    const most = /at most +(\d+) user/.exec(memory.out)?.[1] ?? "";
    expect((await plan(...at, "--hardware", "h100", "--users", most)).code).toBe(0);
    const time = await plan(...at, "--hardware", "l4", "--users", "4", "--slo", "tpot=0.05");
    expect(time.out).toMatch(
      /not served within tpot=0\.05\nlimited by {2}time a token: 4 users take 0\.\d+ s, 0\.05 s allowed/,
    );
  });

  it("says what one user alone breaks where not even one is served, and nothing of it where one is", async () => {
    const slow = await plan(...at, "--hardware", "h100", "--users", "150", "--slo", "tpot=0.001");
    expect(slow.code).toBe(1);
    expect(slow.out).toMatch(
      /memory: 150 users do not fit: .*\nnot one {5}time a token: 1 user takes 0\.0\d+ s, 0\.001 s allowed/,
    );
    expect(slow.out).not.toMatch(/at most/);
    const large = ["llama-3.1-70b", "--context", "4k", "--hardware", "h100", "--users", "4"];
    expect((await plan(...large)).out).toMatch(/\nnot one {5}memory: 1 user does not fit: .*needs 13\d/);
    const { limitOfOne } = JSON.parse((await plan(...large, "--json")).out);
    expect(limitOfOne).toMatchObject({ kind: "memory", users: 1 });
    expect((await plan(...at, "--hardware", "h100", "--users", "150")).out).not.toMatch(/not one/);
    const table = await plan(...at, "--hardware", "l4,t4", "--users", "4", "--slo", "tpot=0.02");
    expect(table.out).toMatch(/^l4 +no, not 1 .*: 4 users take .*; not one: time a token: 1 user takes/m);
  });

  it("is memory on a rack too, where more sizes of tp do not divide than a result has room for", () => {
    const request = { model: modelPreset("qwen3-0.6b"), inventory: machine("gb200-nvl72"), explainNothing: false };
    const { plans, rejected } = planModel({ ...request, batch: 100_000 });
    expect(plans).toEqual([]);
    expect(rejected.filter(({ kind }) => kind === "divisibility").length).toBeGreaterThan(50);
    const needed = rejected.flatMap(({ kind, neededBytes = 0 }) => (kind === "memory" ? [neededBytes] : []));
    // 100,000 sequences on 72 GPUs, 0.875 GiB of cache each: 1,215 GiB on each GPU, and a little beside them.
    expect(Math.min(...needed) / 2 ** 30).toBeGreaterThan(1215);
    expect(Math.min(...needed) / 2 ** 30).toBeLessThan(1240);
  });

  it("several machines stand in one table: who serves, at which cost, and what stands in the way of the others", async () => {
    const some = ["--hardware", "l4,h100,rtx4090", "--slo", "tpot=0.05"];
    const { code, out } = await plan(...at, ...some);
    expect([code, out]).toEqual([0, expect.stringMatching(/^hardware +users +layout .*\$\/M tokens +limit\n/)]);
    const rows = out.trim().split("\n").slice(1);
    expect(rows.at(-1)).toMatch(/^l4 +0 .*time a token: 1 user/);
    const users = Number(/^h100 +(\d+)/m.exec(out)?.[1]);
    const { load } = JSON.parse((await plan(...at, "--hardware", "h100", "--slo", "tpot=0.05", "--json")).out);
    expect(load.users).toBe(users);
    const asked = await plan(...at, ...some, "--users", "16");
    expect(asked.out).toMatch(/^h100 +yes .*\n[\s\S]*^rtx4090 +no, at most \d+/m);
    expect((await plan(...at, "--hardware", "l4,t4", "--users", "64")).code).toBe(1);
    expect((await plan(...at, "--hardware", "l4,t4", "--users", "8", "--batch", "4")).code).toBe(2);
  });
});

describe("costs and lists", () => {
  it("--objective cost is never dearer than the fastest plan, and needs a price", async () => {
    const cost = async (...words: string[]) => {
      const { out } = await plan("llama-3.1-8b", "--hardware", "hgx-h100-8", "--context", "2k", "--json", ...words);
      const { plans } = JSON.parse(out) as { plans: readonly ShardingPlan[] };
      return plans[0]?.estimates.costPerMillionTokens ?? Number.NaN;
    };
    expect(await cost("--objective", "cost")).toBeLessThanOrEqual((await cost("--objective", "latency")) * 1.001);
    const { code, err } = await plan(
      "llama-3.1-8b",
      "--hardware",
      "rtx4080",
      "--context",
      "2k",
      "--objective",
      "cost",
      "--quant",
      "q4_k_m",
    );
    expect([code, err]).toEqual([2, expect.stringContaining("--prices")]);
  });

  it.each([
    ["mixtral-8x7b", "hgx-h100-8", { batch: 16 }],
    ["llama-3.1-8b", "hgx-h100-8", { train: "full", batch: 64, contextTokens: 4096 }],
  ])("of %s on %s (%o), every layout within 10 %% is listed", (name, hardware, more) => {
    const request = { model: modelPreset(name), inventory: machine(hardware), ...more };
    const { plans, near } = planModel(request);
    const best = plans[0]?.score ?? 0;
    const listed = new Set([...near.map(({ axes }) => axes), plans[0]?.mesh.axes].map((axes) => JSON.stringify(axes)));
    const missing: string[] = [];
    for (const dp of [1, 2, 4, 8])
      for (const pp of [1, 2, 4, 8])
        for (const ep of [1, 2, 4, 8])
          for (const tp of [1, 2, 4, 8]) {
            const isDense = ep > 1 && name.startsWith("llama");
            if (dp * pp * ep * tp > 8 || isDense) continue;
            const constrain = { dp, pp, ep, cp: 1, tp };
            const [plan] = planModel({ ...request, constrain, explainNothing: false }).plans;
            if (plan === undefined || plan.score > best * 1.1) continue;
            if (!listed.has(JSON.stringify(plan.mesh.axes))) missing.push(JSON.stringify(plan.mesh.axes));
          }
    expect(missing).toEqual([]);
    expect(near.length).toBeGreaterThan(0);
  });

  it("layouts within 10 % of the chosen one are listed, nearest first", () => {
    const { plans, near } = planModel({
      model: modelPreset("llama-3.1-70b"),
      inventory: machine("hgx-h200-8"),
      quant: "fp8",
      contextTokens: 3000,
      outputTokens: 1000,
      objective: "throughput",
    });
    const [chosen] = plans;
    expect(near.length).toBeGreaterThan(0);
    for (const { axes, ratio } of near) {
      expect(axes).not.toEqual(chosen?.mesh.axes);
      const [fixed] = planModel({
        model: modelPreset("llama-3.1-70b"),
        inventory: machine("hgx-h200-8"),
        quant: "fp8",
        contextTokens: 3000,
        outputTokens: 1000,
        objective: "throughput",
        constrain: axes,
      }).plans;
      // What was judged on the way may have been judged at another batch too: never better than listed.
      expect((fixed?.score ?? 0) / (chosen?.score ?? 1)).toBeLessThanOrEqual(ratio * 1.000_001);
      expect(ratio).toBeLessThanOrEqual(1.1);
    }
    expect(near.map(({ ratio }) => ratio)).toEqual(near.map(({ ratio }) => ratio).sort((a, b) => a - b));
  });

  it("lists models and hardware", async () => {
    expect((await plan("--list", "models")).out).toContain("qwen3-32b");
    expect((await plan("--list", "hardware")).out).toMatch(/rtx-pro-6000 .*GiB/);
    expect((await plan("--list", "prices")).code).toBe(2);
  });
});

describe("options", () => {
  it.each([
    [["--micro-batch", "2"], /--train METHOD/],
    [["--train", "full", "--speculate", "3:0.7"], /no --train/],
    [["--train", "full", "--lora-rank", "8"], /--train lora/],
    [["--engine", "fast"], /tensorrt-llm, vllm/],
    [["--checkpointing", "half", "--train", "full"], /none, selective, full/],
    [["--speculate", "3"], /TOKENS:ACCEPTANCE/],
    [["--prefix-hits", "2"], /0 to 1/],
    [["--context", "200k"], /--force-context/],
  ] as const)("refuses %j", async (words, message) => {
    const { code, err } = await plan("llama-3.1-8b", "--hardware", "h100", ...words);
    expect([code, err]).toEqual([2, expect.stringMatching(message)]);
  });

  it("do what they say", () => {
    const base = {
      model: modelPreset("llama-3.1-8b"),
      inventory: machine("h100"),
      contextTokens: 8192,
      batch: 4,
    } as const;
    const first = (more: object) => {
      const [found] = planModel({ ...base, ...more }).plans;
      if (found?.estimates.kind !== "inference") throw new Error("no plan");
      return found.estimates;
    };
    const plain = first({});
    expect(first({ prefixHits: 0.8 }).ttftMs).toBeLessThan(plain.ttftMs * 0.5);
    expect(first({ speculation: { tokens: 3, acceptance: 0.7 } }).decodeTokensPerSecondPerUser).toBeGreaterThan(
      plain.decodeTokensPerSecondPerUser * 1.5,
    );
    // Small chunks hold less and take longer; what hides half of the exchange leaves the other half.
    const chunked = planModel({ ...base, contextTokens: 32_768, prefillChunkTokens: 512 }).plans[0];
    const whole = planModel({ ...base, contextTokens: 32_768 }).plans[0];
    expect(chunked?.memory.peakRankBytes).toBeLessThan(whole?.memory.peakRankBytes ?? 0);
    expect(() => first({ prefillChunkTokens: 0 })).toThrow(/prefill chunk/);
    const experts = (expertOverlap: number) => {
      const model = modelPreset("deepseek-v3");
      const mesh = { inventory: machine("hgx-h200-8"), batch: 64, constrain: { ep: 8 }, contextTokens: 4096 };
      const [plan] = planModel({ ...mesh, model, expertOverlap }).plans;
      return plan?.estimates.kind === "inference" ? plan.estimates : undefined;
    };
    const [shown, half, hidden] = [0, 0.5, 1].map((overlap) => experts(overlap)?.decodeStepMs ?? 0);
    expect((shown ?? 0) + (hidden ?? 0)).toBeCloseTo(2 * (half ?? 0), 6);
    expect(hidden).toBeLessThan(shown ?? 0);
    expect(planModel({ ...base, contextTokens: 200_000, batch: 1, forceContext: true }).plans).toHaveLength(1);
    expect(planModel({ ...base, gpuMemoryUtilization: 0.15 }).plans).toHaveLength(0);
    const train = (more: object) => planModel({ ...base, train: "lora", ...more }).plans[0]?.memory.peakRankBytes ?? 0;
    expect(train({ checkpointing: "full" })).toBeLessThan(train({ checkpointing: "none" }));
    expect(train({ checkpointing: "full", loraTargets: "qv" })).toBeLessThan(train({ checkpointing: "full" }));
  });

  it("LoRA of an 8B fits one card of 24 GB, and full training of it names what would", () => {
    const request = {
      model: modelPreset("llama-3.1-8b"),
      inventory: machine("rtx4090"),
      contextTokens: 2048,
      batch: 2,
    } as const;
    const [lora] = planModel({ ...request, train: "lora-8" }).plans;
    expect((lora?.memory.peakRankBytes ?? 0) / 2 ** 30).toBeGreaterThan(16);
    expect(planModel({ ...request, train: "full" }).plans).toEqual([]);
    expect(nearestChanges({ ...request, train: "full" }).map(({ change }) => change)).toContain("--train lora");
  });
});
