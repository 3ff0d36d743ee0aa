import { describe, expect, it } from "vitest";
import { interpret } from "../../../test/support/interpret.ts";
import { ALGORITHMS, algorithm } from "../algorithms/index.ts";
import type { Network } from "../certificate/index.ts";
import { compile } from "../language/index.ts";
import { programOf, synthesize } from "../synthesis/index.ts";
import { verifyPlan } from "../verifier/index.ts";
import { planFromJson, planToJson } from "./chorale-json.ts";
import { readMscclXml } from "./read-msccl-xml.ts";
import { writeMscclXml } from "./write-msccl-xml.ts";
import { parseXml } from "./xml-subset.ts";

/** Two ranks, one message each way and a sum: every step type of a hand-written all-reduce. */
const SMALL = `<algo name="pair" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
  <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="1">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="0" deps="2" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>`;

describe("MSCCL algorithm files", () => {
  it("are read as plans that do what they say", () => {
    const plan = readMscclXml(SMALL);
    expect(verifyPlan(plan, { lint: false }).findings).toEqual([]);
    for (let seed = 1; seed <= 50; seed++) expect(interpret(plan, seed)).toBeUndefined();
  });

  it("lose a contribution when a step is lost", () => {
    const wrong = SMALL.replace(/type="rrcs" srcbuf="i" srcoff="1"/, 'type="rcs" srcbuf="i" srcoff="1"');
    expect(verifyPlan(readMscclXml(wrong), { lint: false }).ok).toBe(false);
  });

  it("come back right from every plan of the library that they can express", () => {
    const written: string[] = [];
    for (const entry of ALGORITHMS) {
      const plan = compile(entry.make({ numRanks: 4 }));
      let xml: string;
      try {
        xml = writeMscclXml(plan);
      } catch (error) {
        expect(String(error)).toContain("MSCCL file is not supported");
        continue;
      }
      if (
        !["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce"].includes(entry.collective)
      )
        continue;
      written.push(entry.name);
      expect(verifyPlan(readMscclXml(xml, entry.name), { lint: false }).findings, entry.name).toEqual([]);
    }
    expect(written).toContain("ring-all-reduce");
    expect(written).toContain("halving-doubling-all-reduce");
    expect(written.length).toBeGreaterThan(10);
  });

  it("come back right from synthesised plans: strands that wait for each other, and roots other than rank 0", async () => {
    const ring: Network = {
      nodes: ["a", "b", "c", "d"].map((id) => ({ id, kind: "rank" })),
      edges: ["ab", "bc", "cd", "da", "ba"].map(([from = "", to = ""]) => ({ from, to, capacity: "10" })),
    };
    for (const collective of ["all_reduce", "broadcast", "reduce"] as const) {
      const plan = compile(programOf(await synthesize(ring, collective, { root: 2 }), { pieces: 2 }));
      const back = readMscclXml(writeMscclXml(plan), collective);
      expect(back.collective.root ?? 2).toBe(2);
      expect(verifyPlan(back, { lint: false }).findings, collective).toEqual([]);
      if (collective !== "all_reduce") continue;
      expect(plan.ranks.some(({ semaphores }) => semaphores.length > 0)).toBe(true);
      for (let seed = 1; seed <= 20; seed++) expect(interpret(back, seed)).toBeUndefined();
    }
  });

  it("cannot express packets, and say so", () => {
    expect(() => writeMscclXml(compile(algorithm("packet-all-gather").make({ numRanks: 2 })))).toThrow(/packets/);
  });

  it("are not written of a plan that does not hold together", () => {
    const plan = JSON.parse(planToJson(compile(algorithm("ring-all-reduce").make({ numRanks: 2 }))));
    const op = plan.ranks[0].strands[0].ops.find(({ kind }: { kind: string }) => kind === "put");
    op.src.pop();
    expect(() => writeMscclXml(planFromJson(plan))).toThrow(/0 sources, 1 destinations/);
  });

  it.each([
    ["no document", "", /has no element/],
    ["an open element", "<algo>", /not closed/],
    ["crossed elements", "<a><b></a></b>", /<\/a> closes <b>/],
    ["text", "<a>x</a>", /unexpected "x/],
    ["another root", "<gpu ngpus='1'/>", /expected <algo>/],
    ["no ranks", "<algo name='x' coll='allreduce'/>", /ngpus/],
    ["a wrong step", SMALL.replace('type="cpy"', 'type="mov"'), /"mov"; expected s, r/],
    ["a negative count", SMALL.replace('cnt="1"', 'cnt="-1"'), /integer of 1 or more/],
    [
      "a receiver that is not there",
      SMALL.replace('send="0" recv="0"', 'send="0" recv="-1"'),
      /nobody receives|receives in/,
    ],
    ["a dependence on nothing", SMALL.replace('depid="0" deps="2"', 'depid="7" deps="2"'), /not there/],
    ["a chunk beyond the buffer", SMALL.replace('srcoff="0"', 'srcoff="9"'), /within its 2 chunks/],
  ])("refuse %s with its place", (_, text, message) => {
    expect(() => readMscclXml(text, "file.xml")).toThrow(message);
  });

  it("keep attributes with entities", () => {
    expect(parseXml("<a b='1 &lt; 2' c=\"&quot;\"/>").attributes.get("b")).toBe("1 < 2");
  });
});
