/**
 * Checks detection on a real NVIDIA host: NVML against nvidia-smi field by field, the recording against the live machine,
 * and what the links carry against what they should. Writes a report, the recording and the measurements to a folder.
 *   node scripts/verify-nvidia-host.mjs OUT [LIBRARY]    LIBRARY: folder of the built package (default dist)
 */
import { mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const out = resolve(process.argv[2] ?? "out");
const library = resolve(process.argv[3] ?? fileURLToPath(new URL("../dist", import.meta.url)));
const { detect, measureLinks, openMachine, recordMachine } = await import(
  pathToFileURL(join(library, "machine/hardware/index.js")).href
);
const { islands } = await import(pathToFileURL(join(library, "machine/topology/index.js")).href);
const { diagnose, findEngines } = await import(pathToFileURL(join(library, "apps/doctor/index.js")).href);
mkdirSync(out, { recursive: true });

const report = { checks: [], timings: {} };
const check = (name, ok, detail) => {
  report.checks.push({ name, ok, detail });
  console.log(
    `${ok ? "ok  " : "FAIL"} ${name}${detail === undefined ? "" : `: ${typeof detail === "string" ? detail : JSON.stringify(detail)}`}`,
  );
};
const save = (name, value) =>
  writeFileSync(join(out, name), typeof value === "string" ? value : `${JSON.stringify(value, null, 2)}\n`);
const timed = async (name, work) => {
  const begin = performance.now();
  const result = await work();
  report.timings[name] = Number((performance.now() - begin).toFixed(1));
  return result;
};
const attempt = async (name, work) => {
  try {
    await work();
  } catch (error) {
    check(name, false, String(error?.stack ?? error));
  }
};

/** Fields that two readings a second apart may tell differently, and by how much. */
const TOLERANCE = {
  temperatureC: 4,
  powerWatts: 40,
  utilizationPercent: 100,
  memoryUsedBytes: 64 * 1024 ** 2,
  memoryFreeBytes: 64 * 1024 ** 2,
};
const MOVING_DETAILS = new Set(["smClockMHz", "memoryClockMHz", "throttleReasons", "processes"]);

function differences(a, b) {
  const found = [];
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    const [x, y] = [a[key], b[key]];
    if (key === "details") {
      for (const name of new Set([...Object.keys(x ?? {}), ...Object.keys(y ?? {})])) {
        if (!MOVING_DETAILS.has(name) && JSON.stringify(x?.[name]) !== JSON.stringify(y?.[name]))
          found.push(`details.${name}: ${JSON.stringify(x?.[name])} / ${JSON.stringify(y?.[name])}`);
      }
    } else if (key === "pcie") {
      for (const name of ["maxGeneration", "maxWidth", "width"])
        if (x?.[name] !== y?.[name]) found.push(`pcie.${name}: ${x?.[name]} / ${y?.[name]}`);
    } else if (TOLERANCE[key] !== undefined && x !== undefined && y !== undefined) {
      if (Math.abs(x - y) > TOLERANCE[key]) found.push(`${key}: ${x} / ${y}`);
    } else if (JSON.stringify(x) !== JSON.stringify(y))
      found.push(`${key}: ${JSON.stringify(x)} / ${JSON.stringify(y)}`);
  }
  return found;
}

const gpusOf = (inventory) =>
  inventory.devices.filter((device) => device.family === "nvidia-gpu" && device.parent === undefined);
const linksOf = (inventory) => inventory.topology.links.filter((link) => link.kind === "nvlink");

let nvml;
await attempt("NVML", async () => {
  nvml = await timed("detect through NVML, ms", () => detect({ nvidiaSource: "nvml", exec: false }));
  save("nvml-inventory.json", nvml);
  const gpus = gpusOf(nvml);
  check(
    "NVML: four devices of 143771 MiB",
    gpus.length === 4 && gpus.every((g) => g.memoryBytes === 143771 * 1024 ** 2),
    gpus.map((g) => [g.id, g.name, (g.memoryBytes ?? 0) / 1024 ** 2]),
  );
  const pairs = (nvml.topology.pairs ?? []).filter(
    (p) => gpus.some((g) => g.id === p.a) && gpus.some((g) => g.id === p.b),
  );
  check(
    "NVML: all pairs are NV18",
    pairs.length === 6 && pairs.every((p) => p.relation === "NV18"),
    pairs.map((p) => `${p.a}-${p.b} ${p.relation} ${p.bandwidthGBps}`),
  );
  check(
    "NVML: 26.562 GB/s a link",
    linksOf(nvml).length > 0 &&
      linksOf(nvml).every((l) => l.count > 0 && Math.abs(l.bandwidthGBps / l.count - 26.562) < 1e-6),
    linksOf(nvml),
  );
  const groups = islands(nvml);
  check("NVML: one island", groups.length === 1 && groups[0].devices.length === 4, groups);
  check("NVML: warnings", true, nvml.warnings);
});

await attempt("nvidia-smi", async () => {
  const each = [];
  const smi = await timed("detect through nvidia-smi, ms", () =>
    detect({ nvidiaSource: "nvidia-smi", onTiming: (t) => each.push(t) }),
  );
  report.timings["probes of that, ms"] = Object.fromEntries(
    each.map((t) => [t.name, Number(t.milliseconds.toFixed(1))]),
  );
  save("smi-inventory.json", smi);
  const [a, b] = [gpusOf(nvml), gpusOf(smi)];
  const found = a.flatMap((gpu, i) =>
    b[i] === undefined ? [`${gpu.id}: absent`] : differences(gpu, b[i]).map((d) => `${gpu.id} ${d}`),
  );
  check("NVML and nvidia-smi agree field by field", a.length === b.length && found.length === 0, found);
  const relations = (inventory) => (inventory.topology.pairs ?? []).map((p) => [p.a, p.b, p.relation, p.bandwidthGBps]);
  check(
    "NVML and nvidia-smi give the same topology",
    JSON.stringify(linksOf(nvml)) === JSON.stringify(linksOf(smi)) &&
      JSON.stringify(relations(nvml)) === JSON.stringify(relations(smi)),
    { links: linksOf(smi), pairs: relations(smi), warnings: smi.warnings },
  );
});

await attempt("recording", async () => {
  const printed = await timed("record, ms", () => recordMachine(join(out, "root"), {}));
  const replayed = await detect({ root: join(out, "root") });
  check("the recording replays to the printed inventory", JSON.stringify(printed) === JSON.stringify(replayed));
  const found = gpusOf(nvml).flatMap((gpu, i) =>
    differences({ ...gpu, uuid: undefined }, { ...gpusOf(replayed)[i], uuid: undefined }),
  );
  check("the recording has what was live, UUIDs apart", found.length === 0, found);
  const bySmi = await detect({ root: join(out, "root"), nvidiaSource: "nvidia-smi" });
  check("the recording holds nvidia-smi's answers too", gpusOf(bySmi).length === gpusOf(nvml).length, bySmi.warnings);
});

await attempt("measurement", async () => {
  const measured = await timed("measure, ms", async () => measureLinks(nvml));
  save("measured.json", measured);
  for (const m of measured)
    console.log(
      `     ${m.from} -> ${m.to}  ${m.bandwidthGBps.toFixed(1)} GB/s  ${((m.fractionOfLink ?? 0) * 100).toFixed(1)} % of ${m.linkGBps}  ${m.latencyUs.toFixed(2)} us  ${m.engine}`,
    );
  check(
    "every pair reaches 75 % of its links",
    measured.length === 12 && measured.every((m) => m.fractionOfLink >= 0.75),
    `least ${(100 * Math.min(...measured.map((m) => m.fractionOfLink ?? 0))).toFixed(1)} %`,
  );
});

await attempt("doctor", async () => {
  save("doctor.json", { findings: await diagnose(nvml, await openMachine({})), engines: findEngines() });
});
for (let i = 0; i < 3; i++) await timed(`detect through NVML again (${i + 1}), ms`, () => detect({ exec: false }));

save("report.json", report);
console.log(JSON.stringify(report.timings, null, 2));
process.exit(report.checks.every((c) => c.ok) ? 0 : 1);
