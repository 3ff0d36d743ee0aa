/**
 * Wrong programs that must not compile, and the sentence that TypeScript must print for each. One TypeScript program
 * holds them all, each in a function of its own, so that the compiler runs once.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { afterAll, describe, expect, it } from "vitest";
import { compilerOptions, isBuilt, unlessBuilt } from "../support/declarations.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = mkdtempSync(join(root, "test/types/.generated-"));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

/** What every case may use: a program `p` of two ranks and one of each thing. */
const HEAD = `import { Builder, Chunk, Buffer, RankHandle, MemoryChannel, allGather, allReduce, allToAll, barrier, broadcast, compile, customCollective, gather, program, reduceScatter, sendRecv, writeMscclpp } from "chorale/language";
import { ringAllReduce, directAllToAllV, hierarchicalAllReduce } from "chorale/algorithms";
declare function rest(...used: unknown[]): void;
`;
const SETUP = `  const [a, b] = [p.rank(0), p.rank(1)];
  const [sa, sb] = [a.scratch(4), b.scratch(4)];
  const mem = p.memoryChannel(a, b);
  const port = p.portChannel(a, b);
  const sem = a.semaphore();
  const group = p.strandGroup([0, 1]);
  const sw = p.switchChannel([a, b], "scratch").at(a);
  rest(a, b, sa, sb, mem, port, sem, group, sw);
`;

const PACKETS = /packets live in scratch/;
/** [what is wrong, the wrong statement, the sentence]. */
const IN_PROGRAM: readonly (readonly [string, string, RegExp])[] = [
  ["packets put to an output", "mem.putPackets(b.output.at(0), a.input.at(0));", PACKETS],
  ["packets put to an input", "mem.putPackets(b.input.at(0), a.input.at(0));", PACKETS],
  ["packets put to an output over a port", "port.putPackets(b.output.at(0), a.input.at(0));", PACKETS],
  ["packets copied to an output", "a.copyPackets(a.output.at(0), a.input.at(0));", PACKETS],
  ["packets copied to an input", "a.copyPackets(a.input.at(0), a.output.at(0));", PACKETS],
  ["packets unpacked from an input", "a.unpackPackets(a.output.at(0), a.input.at(0));", PACKETS],
  ["packets unpacked from an output", "a.unpackPackets(a.input.at(0), a.output.at(0));", PACKETS],
  ["packets forwarded from an input", "mem.readPutPackets(sb.at(0), a.input.at(0));", PACKETS],
  ["packets forwarded to an output", "mem.readPutPackets(b.output.at(0), sa.at(0));", PACKETS],
  ["packets forwarded over a port from an output", "port.readPutPackets(sb.at(0), a.output.at(0));", PACKETS],
  ["packets reduced from an input", "a.reducePackets(a.output.at(0), [a.input.at(0)]);", PACKETS],
  ["packets reduced from scratch and an input", "a.reducePackets(a.output.at(0), [sa.at(0), a.input.at(0)]);", PACKETS],
  ["packets broadcast from an output", "sw.broadcastPackets(a.output.at(0), 0);", PACKETS],
  ["packets copied across ranks to an output", "p.copyPackets(b.output.at(0), a.input.at(0));", PACKETS],
  ["packets forwarded across ranks from an input", "p.forwardPackets(sb.at(0), a.input.at(0));", PACKETS],
  [
    "packets reduced by the builder from an output",
    "p.reducePackets(a.output.at(0), a.input.at(0), [a.output.at(1)]);",
    PACKETS,
  ],
  ["a flush of a memory channel", "mem.flush();", /a memory channel has no flush: its stores are done in order/],
  [
    "a put with signal on a memory channel",
    "mem.putWithSignal(sb.at(0), sa.at(0));",
    /putWithSignal is of port channels: on a memory channel call put, then signal/,
  ],
  [
    "a put with signal and flush on a memory channel",
    "mem.putWithSignalAndFlush(sb.at(0), sa.at(0));",
    /putWithSignalAndFlush is of port channels/,
  ],
  ["a get over a port channel", "port.get(sa.at(0), sb.at(0));", /a port channel cannot get: its proxy only puts/],
  [
    "a reduction over a port channel",
    "port.reduce(sa.at(0), [sb.at(0)]);",
    /a port channel cannot reduce: put to scratch and reduce there/,
  ],
  ["a relaxed signal on a port channel", "port.signal({ relaxed: true });", /a port channel has no relaxed signal/],
  ["a relaxed wait on a port channel", "port.wait({ relaxed: false });", /a port channel has no relaxed wait/],
  ["a strand group that signals", "mem.signal(group);", /it takes no strand group/],
  ["a strand group that waits", "mem.wait(group);", /it takes no strand group/],
  ["a strand group that signals, in options", "mem.signal({ strand: group });", /it takes no strand group/],
  ["a strand group that flushes", "port.flush(group);", /it takes no strand group/],
  ["a strand group that signals on a port", "port.signal(group);", /it takes no strand group/],
  ["a strand group that acquires", "sem.acquire(group);", /it takes no strand group/],
  ["a strand group that releases", "sem.release(group);", /it takes no strand group/],
  [
    "a strand group that puts with signal",
    "port.putWithSignal(sb.at(0), sa.at(0), group);",
    /a put that signals is done by one strand/,
  ],
  [
    "a strand group that puts with signal and flush",
    "port.putWithSignalAndFlush(sb.at(0), sa.at(0), group);",
    /a put that signals is done by one strand/,
  ],
  [
    "a strand group that puts packets over a port",
    "port.putPackets(sb.at(0), sa.at(0), group);",
    /putPackets over a port channel is done by one strand/,
  ],
  [
    "a strand group on a switch reduction",
    "sw.reduce(sa.at(0), 0, group);",
    /a switch operation is done by one strand/,
  ],
  [
    "a strand group on a switch broadcast",
    "sw.broadcast(sa.at(0), 0, group);",
    /a switch operation is done by one strand/,
  ],
  [
    "a strand group on a switch broadcast of packets",
    "sw.broadcastPackets(sa.at(0), 0, group);",
    /a switch operation is done by one strand/,
  ],
  [
    "a buffer instead of a chunk",
    "a.copy(a.output, a.input.at(0));",
    /'Buffer<"x", "output">' is not assignable to parameter of type 'Chunk<"x"/,
  ],
  [
    "a rank's number instead of a rank",
    "p.memoryChannel(0, 1);",
    /'number' is not assignable to parameter of type 'RankHandle<"x">'/,
  ],
  [
    "an unknown reduction",
    'a.reduce(sa.at(0), [sa.at(1)], { op: "mean" });',
    /"mean"' is not assignable to type '(PlanReduceOp|"[a-z]+")/,
  ],
  ["an unknown kind of synchronisation", 'mem.signal({ sync: "always" });', /"always"/],
  [
    "an unknown buffer of a switch",
    'p.switchChannel([a, b], "inputs");',
    /'"inputs"' is not assignable to parameter of type '"input" \| "output" \| "scratch"'/,
  ],
  ["a write to a chunk's index", "sa.at(0).index = 3;", /Cannot assign to 'index' because it is a read-only property/],
  [
    "a single chunk where a list is reduced",
    "a.reduce(a.output.at(0), sa.at(0));",
    /is not assignable to parameter of type 'readonly Chunk<"x"/,
  ],
  ["a loop without chunks", "p.loop({ unitBytes: 1024 }, () => {});", /Property 'numChunks' is missing/],
];
const WHOLE: readonly (readonly [string, string, RegExp])[] = [
  [
    "a chunk of another program",
    `program({ name: "x", collective: allReduce(2) }, (p) => { program({ name: "y", collective: allReduce(2) }, (q) => { q.rank(0).copy(q.rank(0).output.at(0), p.rank(0).input.at(0)); }); });`,
    /valuesOfDifferentProgramsDoNotMix/,
  ],
  [
    "a rank of another program",
    `program({ name: "x", collective: allReduce(2) }, (p) => { program({ name: "y", collective: allReduce(2) }, (q) => { q.memoryChannel(q.rank(0), p.rank(1)); }); });`,
    /valuesOfDifferentProgramsDoNotMix/,
  ],
  [
    "a strand group of another program",
    `program({ name: "x", collective: allReduce(2) }, (p) => { program({ name: "y", collective: allReduce(2) }, (q) => { q.rank(0).copy(q.rank(0).output.at(0), q.rank(0).input.at(0), p.strandGroup([0])); }); });`,
    /'StrandGroup<"x">' is not assignable to/,
  ],
  ["a program without a name", "program({ collective: allReduce(2) }, () => {});", /Property 'name' is missing/],
  ["a program without a collective", 'program({ name: "x" }, () => {});', /Property 'collective' is missing/],
  [
    "an unknown protocol",
    'program({ name: "x", collective: allReduce(2), protocol: "LL128" }, () => {});',
    /"LL128"' is not assignable to type '"Simple" \| "LL"/,
  ],
  [
    "an unknown synchronisation mode",
    'program({ name: "x", collective: allReduce(2), autoSync: true }, () => {});',
    /is not assignable to type '(AutoSyncMode|"none")/,
  ],
  [
    "an unknown mode of compilation",
    'compile(program({ name: "x", collective: allReduce(2) }, () => {}), { compat: "nccl" });',
    /"nccl"' is not assignable to type '"mscclpp"/,
  ],
  ["a root of an all-gather", "allGather(2, { root: 0 });", /'root' does not exist/],
  ["an operator of a broadcast", 'broadcast(2, { op: "sum" });', /'op' does not exist/],
  ["a barrier with chunks", "barrier(2, { chunks: 2 });", /Expected 1 arguments, but got 2/],
  [
    "a custom collective without post-condition",
    'customCollective("mine", 2, { inputChunks: () => 1, outputChunks: () => 1 });',
    /Property 'post' is missing/,
  ],
  [
    "a hierarchical algorithm without its node size",
    "hierarchicalAllReduce({ numRanks: 8 });",
    /Property 'ranksPerNode' is missing/,
  ],
  ["an algorithm without ranks", "ringAllReduce({});", /Property 'numRanks' is missing/],
];

interface Case {
  readonly name: string;
  readonly code: string;
  readonly sentence: RegExp;
}
const CASES: readonly Case[] = [
  ...IN_PROGRAM.map(([name, code, sentence]) => ({
    name,
    sentence,
    code: `program({ name: "x", collective: allReduce(2) }, (p) => {\n${SETUP}  ${code}\n});`,
  })),
  ...WHOLE.map(([name, code, sentence]) => ({ name, sentence, code })),
];

/** Messages by case: every case stands in a file of its own. */
function check(cases: readonly Case[]): string[][] {
  const files = cases.map((one, i) => {
    const path = join(folder, `case-${i}.ts`);
    writeFileSync(
      path,
      `${HEAD}${one.code}\nrest(Builder, Chunk, Buffer, RankHandle, MemoryChannel, allGather, allReduce, allToAll, barrier, broadcast, compile, customCollective, gather, program, reduceScatter, sendRecv, writeMscclpp, ringAllReduce, directAllToAllV, hierarchicalAllReduce);\n`,
    );
    return path;
  });
  const made = ts.createProgram(files, compilerOptions());
  return files.map((file) => {
    const source = made.getSourceFile(file);
    return [...made.getSemanticDiagnostics(source), ...made.getSyntacticDiagnostics(source)].map((d) =>
      ts.flattenDiagnosticMessageText(d.messageText, "\n"),
    );
  });
}

describe.skipIf(!isBuilt)(`the language's types${unlessBuilt}`, () => {
  const messages = !isBuilt
    ? []
    : check([
        ...CASES,
        {
          name: "right",
          sentence: /^$/,
          code: `program({ name: "x", collective: allReduce(2) }, (p) => {\n${SETUP}
  mem.putPackets(sb.at(0), a.input.at(0)); mem.signal(); mem.signal({ strand: 1, relaxed: true }); port.flush(2); port.putWithSignal(sb.at(0), sa.at(0), 1);
  a.reduce(a.input.at(0), [sa.at(0)], { op: "max", dst: a.output.at(0), strand: group }); a.copy(a.output.at(0), a.input.at(0), group); mem.readPutPackets(sb.at(0), sa.at(0), group);
  a.reducePackets(a.output.at(0), [sa.at(0)], { strand: 1 }); sw.reduce(sa.at(0), 0, 1); sem.acquire({ strand: 1, sync: "before" });
});`,
        },
      ]);

  it("has at least 40 wrong programs", () => {
    expect(CASES.length).toBeGreaterThanOrEqual(40);
  });

  it.each(CASES.map((one, i) => [one.name, i] as const))("refuses %s with a sentence", (_, i) => {
    expect(messages[i]?.join("\n") ?? "").toMatch(CASES[i]?.sentence ?? /^$/);
    // One mistake, one message (of a list, one for each element that TypeScript looks at).
    expect(messages[i]?.length).toBeLessThanOrEqual(2);
  });

  it("accepts the right program that uses the same calls", () => {
    expect(messages.at(-1)).toEqual([]);
  });

  it("checks a program of 500 lines in under 2 s", () => {
    const body = Array.from({ length: 490 }, (_, i) => {
      const k = i % 5;
      return k === 0
        ? `  mem.put(sb.at(${i % 4}), a.input.at(${i % 2}), ${i % 8});`
        : k === 1
          ? `  mem.signal({ strand: ${i % 8}, sync: "before" });`
          : k === 2
            ? `  a.reduce(a.input.at(0), [sa.at(${i % 4}), sa.at(0)], { dst: a.output.at(1), strand: ${i % 8} });`
            : k === 3
              ? `  mem.putPackets(sb.slice(0, 2), a.input.slice(0, 2), ${i % 8});`
              : `  port.putWithSignal(sb.at(1), sa.at(${i % 4}));`;
    });
    const path = join(folder, "long.ts");
    writeFileSync(
      path,
      `${HEAD}program({ name: "long", collective: allReduce(2) }, (p) => {\n${SETUP}${body.join("\n")}\n});\n`,
    );
    // CPU time, in which other tests of a busy machine do not count: the best of up to three runs.
    let best = Number.POSITIVE_INFINITY;
    for (let run = 0; run < 3 && best >= 2; run++) {
      const program = ts.createProgram([path], compilerOptions());
      const before = process.cpuUsage();
      const found = program.getSemanticDiagnostics();
      const { user, system } = process.cpuUsage(before);
      expect(found.map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, "\n"))).toEqual([]);
      best = Math.min(best, (user + system) / 1e6);
    }
    expect(best).toBeLessThan(2);
  });
});
