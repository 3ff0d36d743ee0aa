/**
 * The leak campaign: collectives, splits and whole worlds by the thousand, and what is left of device memory, host
 * memory, descriptors and threads. Run after `npm run build`, on a host with GPUs:
 *   node test/campaigns/leaks.mjs [--ranks 2] [--isolation thread|process] [--backend nccl] [--collectives 100000]
 *                                 [--splits 1000] [--inits 50] [--backend-option KEY=VALUE …] [--json]
 * NCCL's ncclCommDestroy takes half a second (a thread of its own looks every 500 ms whether it shall end), so that 1,000
 * splits take nine minutes; groups that share their parent's threads (--backend-option 'config={"splitShare":1}') do not.
 * Says on stderr how far it is, so that a run that is stopped shows what it came to. Exit code 1 when something was kept.
 */
import { importUserModule, parseBackend, parseBackendOptions, parseIsolation } from "chorale/world";
import { flagsOf, integer } from "../../dist/apps/bench/script-flags.js";

const { measureLeaks } = await importUserModule(new URL("./leaks/measure-leaks.ts", import.meta.url));

const config = {
  options: {
    ranks: { type: "string", default: "2" },
    backend: { type: "string", default: "nccl" },
    isolation: { type: "string", default: "thread" },
    collectives: { type: "string", default: "100000" },
    splits: { type: "string", default: "1000" },
    inits: { type: "string", default: "50" },
    "backend-option": { type: "string", multiple: true, default: [] },
    json: { type: "boolean", default: false },
  },
};
const { json, ...chosen } = flagsOf(import.meta.url, config, ({ values }) => ({
  backend: parseBackend(values.backend, "--backend"),
  isolation: parseIsolation(values.isolation, "--isolation"),
  ranks: integer(values.ranks, "--ranks"),
  collectives: integer(values.collectives, "--collectives", 0),
  splits: integer(values.splits, "--splits", 0),
  inits: integer(values.inits, "--inits", 0),
  backendOptions: parseBackendOptions(values["backend-option"]),
  json: values.json,
}));
const mib = (bytes) => (bytes / 2 ** 20).toFixed(2);
const columns = [13, 8, 13, 10, 10, 10, 6, 9, 9, 6];
const line = (cells) => console.log(cells.map((cell, i) => String(cell).padStart(columns[i])).join(""));
if (!json) {
  const { ranks, isolation, backend } = chosen;
  console.log(`# leaks: ${ranks} ranks as ${isolation}, backend ${backend}, Node ${process.version}`);
  line(["phase", "count", "device MiB", "pool MiB", "RSS MiB", "heap MiB", "fds", "threads", "seconds", "ok"]);
}
const report = await measureLeaks({
  ...chosen,
  onProgress: ({ phase, count, of, tookMs, deviceBytes, rssBytes }) => {
    const device = deviceBytes === undefined ? "" : `, device ${mib(deviceBytes)} MiB`;
    const host = rssBytes === undefined ? "" : `, RSS ${mib(rssBytes)} MiB`;
    process.stderr.write(`${phase}: ${count} of ${of}, ${(tookMs / 1000).toFixed(1)} s${device}${host}\n`);
  },
  onPhase: (row) => {
    if (json) return;
    const { phase, count, deviceBytes, poolBytes, rssBytes, heapBytes, fds, threads, tookMs, ok } = row;
    const seconds = (tookMs / 1000).toFixed(1);
    const host = [mib(rssBytes), mib(heapBytes), fds, threads];
    line([phase, count, mib(deviceBytes), mib(poolBytes), ...host, seconds, ok ? "yes" : "NO"]);
  },
});
if (json) console.log(JSON.stringify({ schemaVersion: 1, ...report }, null, 2));
process.exitCode = report.ok ? 0 : 1;
