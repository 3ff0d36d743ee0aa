import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const root = fileURLToPath(new URL(".", import.meta.url));
const { exports } = JSON.parse(readFileSync(new URL("package.json", import.meta.url), "utf8")) as {
  exports: Record<string, { default?: string } | string>;
};

/** `chorale/x` in a test means the source, so that a test never runs against an old build. */
const alias = Object.entries(exports).flatMap(([subpath, target]) =>
  typeof target === "string" || target.default === undefined
    ? []
    : [
        {
          find: new RegExp(`^${subpath === "." ? "chorale" : `chorale${subpath.slice(1)}`}$`),
          replacement: root + target.default.replace("./dist/", "src/").replace(/\.js$/, ".ts"),
        },
      ],
);

/**
 * Tests of what computes and keeps nothing: they share a process, which loads each module once. Starting a process and
 * loading the same modules for every such file takes 0.6 s of a core each, and a second where it loads the commands. Tests
 * of worlds, devices and processes have a process of their own: they change its environment, count its threads and
 * descriptors, and some end it. So have those that make thousands of shared buffers, each of which may have V8 collect the
 * whole heap (joint-turn.test.ts took several times as long), and those that measure times.
 */
const SHARED = [
  "src/{core,collectives,planner,authoring,mesh,machine,foreign}/**/*.test.ts",
  "src/runtime/{comm,executor,progress}/**/*.test.ts",
  "src/runtime/world/{ended-world,launcher-line,node-link,parts,rank-frames,supervisor-model}.test.ts",
  "src/runtime/{memory/{control-segment,nap,presence,writers,free-list,grant,host-addresses,lock,tensor-room},rendezvous/{channel,value-store,rendezvous-store,peer-connections,launcher-environments,slurm-hosts},device/kernel-arguments}.test.ts",
  "src/runtime/{hosts/cut-shares,extensions/{quantizer,staged-work}}.test.ts",
  "src/runtime/backends/{mpi,tcp}/{launchers,reduction-kernels,connection,frame,frame-checksum,own-address,spin,quick-calls,tcp-work,device-list}.test.ts",
  "src/runtime/backends/mpi/{direct-call,free-list,host-measurement,known-calls,mpi-queue,shared-tiles}.test.ts",
  "src/runtime/backends/tcp/{algorithms,hierarchy-choices,known-schedules,meet,reducer,schedule-run,shared-reductions}.test.ts",
  "src/runtime/backends/nccl/{completion,drained-streams,epilogue-shape,epilogue-slot,graphs,group-plans,issuer,kernel-room,nccl-entry,nonsense,stand-ins,meet-hosts,others-settle,plan-slot,prepare,reused-memory}.test.ts",
  "src/runtime/backends/threads/{collective-path,core-sharing,heap,misuse,protocol,relay-tree,spin-then-sleep,verdict-table,views}.test.ts",
  "src/apps/{bench/collectives/call-timing,cli/{ignored-options,launch}}.test.ts",
  "src/apps/cli/{check-sim,compile,hardware,option-readers,sim-library,synth,tune}.test.ts",
  "src/apps/doctor/{codes,doctor,missing-ffi,mpi,node-version}.test.ts",
  "examples/sharded-llama/{arguments,kernels,layout,memory}.test.ts",
  "examples/{write-a-collective/ring,data-parallel/mlp}.test.ts",
  "test/{planner,oracle,mscclpp,types}/**/*.test.ts",
  "test/{api-report,architecture,authoring-rooms,backend-names,bench-scripts,complaints-table,doc-links,docstrings,environment-page}.test.ts",
  "test/{lean-start,package,parity,parity-dsl,simulator-accuracy,temporary-folder}.test.ts",
  "test/campaigns/synthesis.test.ts",
];
/**
 * Tests that keep the threads of their ranks for the next world: they share a process as well, for the next file's worlds. Not those
 * that count what a process has, or that look at a thread's end.
 */
const KEPT_RANKS = [
  "src/runtime/backends/threads/{call-numbers,eager-rings,large-move,named-calls,plan-runs,planned-calls}.test.ts",
  "src/runtime/backends/threads/{repeated-calls,repeated-runs,served-calls,threads}.test.ts",
  "src/runtime/backends/nccl/{batch-limit,call-publication,capabilities,capture,communicator-teardown,deadlines}.test.ts",
  "src/runtime/backends/nccl/{failure-reach,flight,held-back,held-order,open-communicator,pair-order,peer-access}.test.ts",
  "src/runtime/backends/nccl/{pending-abort,programs,queue-failure,queue,quiet-window,rank-device}.test.ts",
  "src/runtime/backends/nccl/{stream-order,turn-attendance}.test.ts",
  "test/atomr-accel-defects.test.ts",
];
// Fixtures are recordings of machines, with links that lead anywhere.
const exclude = ["**/node_modules/**", "test/fixtures/**"];

/**
 * What tests import of src/, from its transpiled copy (scripts/transpile.mjs), which Node loads itself: that takes a fifth
 * of the CPU of the whole suite less. Watching needs the sources themselves, to see that they change.
 */
const transpiledSources = {
  name: "transpiled sources",
  enforce: "pre" as const,
  resolveId(id: string, importer?: string) {
    const path = id.startsWith(".") && importer !== undefined ? join(dirname(importer), id) : id;
    if (!path.startsWith(`${root}src/`) || !/(?<!\.test)\.tsx?$/.test(path) || !existsSync(path)) return undefined;
    return path.replace(`${root}src/`, `${root}.cache/unit/`).replace(/\.tsx?$/, ".js");
  },
};

export default defineConfig({
  resolve: { alias },
  plugins: process.argv.includes("run") ? [transpiledSources] : [],
  test: {
    // Call sites are told by source maps. Garbage is collected by one thread: V8's helpers, four in each process, cost tests that
    // compute (src/authoring, src/runtime/executor/cpu) a fifth of their CPU on two busy cores; worlds of threads, nothing either way.
    execArgv: ["--enable-source-maps", "--single-threaded-gc"],
    server: { deps: { external: [/\/\.cache\/unit\//] } },
    projects: [
      {
        extends: true,
        test: {
          name: "own process",
          include: ["src/**/*.test.ts", "test/**/*.test.ts", "examples/**/*.test.ts", "bench/**/*.test.ts"],
          exclude: [...exclude, ...SHARED, ...KEPT_RANKS],
          setupFiles: ["test/own-process-setup.ts"],
        },
      },
      { extends: true, test: { name: "kept ranks", include: KEPT_RANKS, exclude, isolate: false } },
      { extends: true, test: { name: "shared process", include: SHARED, exclude, isolate: false } },
    ],
    globalSetup: ["test/global-setup.ts"],
    // What was tuned on the machine that runs the tests must not change them.
    // Each kernel of one size would take g++ a second on stand-in devices.
    env: { CHORALE_CHOICES: "shipped", CHORALE_CUDA_FOLD: "off" },
    setupFiles: ["test/file-setup.ts"],
    // Says what was found, not "[ …(2) ]".
    chaiConfig: { truncateThreshold: 4000 },
    // Many times what the longest without a limit of its own takes; and more than the deadline of a call, whose error says more.
    testTimeout: 180_000,
    hookTimeout: 180_000,
    pool: "forks",
    // One more than the two cores of CI: many tests wait for deadlines, processes and sockets.
    maxWorkers: 3,
  },
});
