/**
 * Rows of cuda-campaign.sh: `cuda-campaign-rows.mjs STEP < output` puts the step's name to every JSON row of what it printed;
 * `cuda-campaign-rows.mjs --table FILE` prints the tables of all of them, one line a size.
 */
import { readFileSync } from "node:fs";
import { flagsOf } from "../dist/apps/bench/script-flags.js";

const config = { allowPositionals: true, options: { table: { type: "string" } } };
const { step, file } = flagsOf(import.meta.url, config, ({ values, positionals }) => ({
  step: positionals[0],
  file: values.table,
}));

function* rowsOf(text) {
  for (const line of text.split("\n")) {
    if (!/^[[{]/.test(line)) continue;
    try {
      const value = JSON.parse(line);
      yield* Array.isArray(value) ? value : [value];
    } catch {
      // Not a row.
    }
  }
}
const size = (bytes) =>
  bytes >= 2 ** 30 ? `${bytes / 2 ** 30}G` : bytes >= 2 ** 20 ? `${bytes / 2 ** 20}M` : `${bytes / 1024}K`;
const mean = (list) => Math.exp(list.reduce((sum, x) => sum + Math.log(x), 0) / list.length);

if (file === undefined) {
  for (const row of rowsOf(readFileSync(0, "utf8"))) console.log(JSON.stringify({ step, ...row }));
} else {
  const rows = [...rowsOf(readFileSync(file, "utf8"))];
  const of = (step) => rows.filter((row) => row.step === step);
  const beside = new Map(of("beside").map((row) => [`${row.op} ${row.dtype} ${row.bytes} ${row.label}`, row]));
  for (const step of ["thread", "process", "more-thread", "more-process", "bf16"]) {
    const all = of(step).filter(({ label }) => label !== undefined);
    if (all.length === 0) continue;
    console.log(`-- ${step}: NCCL us | ours us, x | best tried | MSCCL++ us (its NCCL)`);
    const groups = new Map();
    for (const row of all) {
      const key = `${row.op} ${row.dtype} ${row.bytes}`;
      groups.set(key, [...(groups.get(key) ?? []), row]);
    }
    const ratios = new Map();
    for (const [key, list] of groups) {
      const [op, dtype, bytes] = key.split(" ");
      const nccl = list.find(({ label }) => label === "nccl");
      const choice = list.find(({ label }) => label === "choice");
      const best = list.filter(({ us }) => us !== undefined).sort((a, b) => a.us - b.us)[0];
      const theirs = beside.get(`${key} mscclpp`);
      const wrong = list.reduce((sum, row) => sum + (row.wrong ?? 0), 0);
      if (nccl?.us !== undefined && choice?.us !== undefined && Number(bytes) <= 2 ** 28)
        ratios.set(`${op} ${dtype}`, [...(ratios.get(`${op} ${dtype}`) ?? []), nccl.us / choice.us]);
      console.log(
        [
          `${op} ${dtype} ${size(Number(bytes))}: ${nccl?.us?.toFixed(2)}`,
          `${choice?.us?.toFixed(2) ?? choice?.refused} ${(nccl?.us / choice?.us).toFixed(2)}x ${choice?.served ?? ""}`,
          best === undefined || best === choice ? "" : `${best.us.toFixed(2)} ${best.label}`,
          theirs === undefined ? "" : `${theirs.us.toFixed(2)} (${beside.get(`${key} nccl`)?.us.toFixed(2)})`,
          wrong > 0 ? `WRONG ${wrong}` : "",
        ].join(" | "),
      );
    }
    for (const [key, list] of ratios) console.log(`geometric mean ${key}: ${mean(list).toFixed(3)}`);
  }
  for (const row of rows.filter(({ op }) => op === "calls"))
    console.log(
      `calls ${row.step} ${row.bytes} ${row.label} ${row.ends}: await ${row.awaitUs.toFixed(2)} wait ${row.waitUs.toFixed(2)} back ${row.backToBackUs.toFixed(2)}`,
    );
  const executor = of("executor");
  const ours = of("ours");
  const pairs = executor.flatMap((row) => {
    const own = ours.find(({ label, bytes }) => label === row.label && bytes === row.bytes);
    return own?.us === undefined ? [] : [{ ...row, own: own.us }];
  });
  if (pairs.length > 0)
    console.log(
      `executor: ${pairs.length} pairs, ours ${mean(pairs.map(({ us, own }) => us / own)).toFixed(3)}x in the geometric mean; wrong: theirs ${executor.filter(({ wrong }) => wrong > 0).length}, ours ${ours.filter(({ wrong }) => wrong > 0).length}, refused ${ours.filter(({ refused }) => refused).length}`,
    );
  for (const step of ["programs", "programs-process", "soak", "soak-process", "faults", "faults-thread"]) {
    const told = of(step);
    // A step that ended has a line of all; of one that did not, its last line says how far it came.
    const whole = told.filter(({ progress }) => progress === undefined);
    for (const row of whole.length > 0 ? whole : told.slice(-1)) console.log(JSON.stringify(row).slice(0, 1200));
  }
}
