/** Slurm's lists of hosts, and where the processes of a step meet by them. */
import fc from "fast-check";
import { expect, it } from "vitest";
import { InvalidArgumentError } from "../../core/index.ts";
import { foreignPlace, rendezvousAddress } from "./launcher-environments.ts";
import { nodeRendezvous } from "./node-place.ts";
import { expandHostList } from "./slurm-hosts.ts";

it("expands lists as Slurm writes them", () => {
  for (const [list, hosts] of [
    ["node7", "node7"],
    ["node[01-04,07],gpu-3", "node01 node02 node03 node04 node07 gpu-3"],
    ["rack[1-2]n[1-3]", "rack1n1 rack1n2 rack1n3 rack2n1 rack2n2 rack2n3"],
    ["n[8-11]", "n8 n9 n10 n11"],
    ["n[098-101]", "n098 n099 n100 n101"],
    ["n[1,01,001]", "n1 n01 n001"],
    ["a[0-1].b.example,c[5]-ib0", "a0.b.example a1.b.example c5-ib0"],
    ["[1-2]x", "1x 2x"],
    ["b,a,b", "b a b"],
    ["n[4,2]", "n4 n2"],
  ] as const)
    expect(expandHostList(list).join(" "), list).toBe(hosts);
});

it("refuses lists that are none, and says where", () => {
  for (const [list, why] of [
    ["a[1-", /a bracket is not closed/],
    ["a[1-2", /at character 2, a bracket is not closed/],
    ["b,a[5-1]", /at character 5, the range 5-1 ends before it begins/],
    ["a[]", /at character 3, expected a number or a range/],
    ["a[1-2,]", /at character 7, expected a number or a range/],
    ["a[0-8:2]", /expected a number or a range/],
    ["a[[1-2]]", /expected a number or a range/],
    ["a1]", /"\]" is not part of a host's name/],
    ["a b", /" " is not part/],
    ["a\n", /"\\n" is not part/],
    ["", /at character 1, a host's name is missing/],
    ["a,", /at character 3, a host's name is missing/],
    [",a", /at character 1, a host's name is missing/],
    ["-oProxyCommand", /begins with a letter or a digit/],
    ["a[0-999999999]", /more than 65536 hosts/],
    ["a[1-99999999999999999999]", /12 digits at most/],
    ["a[0-9999]b[0-9999]", /more than 65536 hosts/],
    ["a[0-65535],b", /more than 65536 hosts/],
    [`a${"[1]".repeat(9)}`, /more than 8 brackets/],
    ["x".repeat(254), /more than 253 characters/],
    ["x,".repeat(70_000), /longer than 131072 characters/],
  ] as const) {
    expect(() => expandHostList(list, "SLURM_STEP_NODELIST"), list.slice(0, 40)).toThrow(InvalidArgumentError);
    expect(() => expandHostList(list, "SLURM_STEP_NODELIST"), list.slice(0, 40)).toThrow(why);
  }
  expect(expandHostList("a[0-65535]")).toHaveLength(65_536);
});

it("expands what was folded, for any hosts", () => {
  const literal = fc.stringMatching(/^[a-z][a-z0-9.-]{0,5}[a-z.-]$/);
  const range = fc
    .record({ first: fc.nat(2000), count: fc.integer({ min: 1, max: 12 }), pad: fc.nat(6) })
    .map(({ first, count, pad }) => {
      const number = (index: number) => String(first + index).padStart(pad, "0");
      const words = Array.from({ length: count }, (_, index) => number(index));
      // A range is padded to the width of its first number: further digits come by themselves.
      return { text: count === 1 ? number(0) : `${number(0)}-${number(count - 1)}`, words };
    });
  const bracket = fc.array(range, { minLength: 1, maxLength: 3 }).map((ranges) => ({
    text: `[${ranges.map(({ text }) => text).join(",")}]`,
    words: ranges.flatMap(({ words }) => words),
  }));
  const part = fc.oneof(
    literal.map((text) => ({ text, words: [text] })),
    bracket,
  );
  const name = fc
    .tuple(
      literal.map((text) => ({ text, words: [text] })),
      fc.array(part, { maxLength: 3 }),
    )
    .map(([first, parts]) => ({
      text: [first, ...parts].map(({ text }) => text).join(""),
      words: [first, ...parts].reduce<string[]>((all, { words }) => all.flatMap((a) => words.map((b) => a + b)), [""]),
    }));
  fc.assert(
    fc.property(fc.array(name, { minLength: 1, maxLength: 3 }), (names) => {
      fc.pre(names.reduce((sum, { words }) => sum + words.length, 0) <= 65_536);
      expect(expandHostList(names.map(({ text }) => text).join(","))).toEqual(names.flatMap(({ words }) => words));
    }),
    { numRuns: 200 },
  );
});

it("either expands any text to names within its bounds, or says what is wrong", () => {
  const token = fc.constantFrom(
    "[",
    "]",
    ",",
    "-",
    "a",
    "n0",
    "07",
    "1-3",
    "0-99999",
    "5-1",
    "999999999999",
    ".",
    " ",
    "é",
  );
  const text = fc.oneof(
    fc.array(token, { maxLength: 30 }).map((words) => words.join("")),
    fc.string({ unit: "binary" }),
  );
  let numRead = 0;
  fc.assert(
    fc.property(text, (list) => {
      let hosts: readonly string[];
      try {
        hosts = expandHostList(list);
      } catch (error) {
        expect(error).toBeInstanceOf(InvalidArgumentError);
        return;
      }
      numRead++;
      expect(hosts.length).toBeGreaterThan(0);
      expect(hosts.length).toBeLessThanOrEqual(65_536);
      // Ten thousand expectations would take longer than the expansion.
      expect(hosts.every((host) => /^\w[\w.-]*$/.test(host) && host.length <= 253)).toBe(true);
    }),
    { numRuns: 3000 },
  );
  expect(numRead).toBeGreaterThan(30);
});

const step = {
  SLURM_PROCID: "1",
  SLURM_STEP_NUM_TASKS: "4",
  SLURM_STEP_NUM_NODES: "2",
  SLURM_STEP_NODELIST: "gpu[07-08]",
  SLURM_JOB_NODELIST: "gpu[05-09]",
  SLURM_JOB_ID: "8191",
  SLURM_STEP_ID: "0",
};

it("lets the ranks of a step meet on its first host, unless something says where", () => {
  const where = (env: Record<string, string | undefined>, spansHosts = true) =>
    rendezvousAddress(env, spansHosts, foreignPlace(env));
  expect(where(step)).toEqual({ host: "gpu07", port: 65_535 });
  expect(where({ ...step, SLURM_PROCID: "0" })).toEqual(where(step));
  expect(where({ ...step, SLURM_JOB_ID: "8192" }).port).toBe(61_440);
  expect(where({ ...step, SLURM_JOB_ID: "8192", SLURM_STEP_ID: "1" }).port).toBe(62_437);
  expect(where(step, false)).toEqual({ host: "127.0.0.1", port: 65_535 });
  expect(where({ ...step, SLURM_STEP_NODELIST: undefined }).host).toBe("gpu05");
  expect(where({ ...step, SLURM_JOB_ID: undefined }).port).toBe(29_517);
  expect(where({ ...step, CHORALE_RDZV: "a:1" })).toEqual({ host: "a", port: 1 });
  expect(where({ ...step, MASTER_PORT: "5000" })).toEqual({ host: "gpu07", port: 5001 });
  expect(where({ ...step, MASTER_ADDR: "b" })).toEqual({ host: "b", port: 65_535 });
  // What is explicit is not held up by a list that is wrong.
  expect(where({ ...step, MASTER_ADDR: "b", SLURM_STEP_NODELIST: "gpu[" }).host).toBe("b");
  expect(() => where({ ...step, SLURM_STEP_NODELIST: "gpu[" })).toThrow(
    /SLURM_STEP_NODELIST is "gpu\["; expected hosts/,
  );
  expect(() => where({ ...step, SLURM_JOB_ID: "x" })).toThrow(/SLURM_JOB_ID is "x"/);
});

it("derives nothing where Slurm started something else than this process", () => {
  // mpirun's daemons are tasks of a step, which has another size; the parts of a heterogeneous job have lists of their own.
  const openMpi = { OMPI_COMM_WORLD_RANK: "1", OMPI_COMM_WORLD_SIZE: "8", OMPI_COMM_WORLD_LOCAL_SIZE: "4" };
  for (const env of [
    { ...step, ...openMpi },
    { ...step, SLURM_HET_SIZE: "2" },
  ])
    expect(() => rendezvousAddress(env, true, foreignPlace(env))).toThrow(/neither CHORALE_RDZV nor/);
  expect(nodeRendezvous(step, { node: 0, count: 4 })).toBeUndefined();
  expect(nodeRendezvous({ ...step, SLURM_STEP_NUM_TASKS: undefined }, { node: 1, count: 4 })).toBeUndefined();
  // With PMI of Slurm the place is MPICH's, and the same.
  const pmi = { ...step, PMI_RANK: "1", PMI_SIZE: "4" };
  expect(rendezvousAddress(pmi, true, foreignPlace(pmi)).host).toBe("gpu07");
});

it("says by what the launchers meet", () => {
  const here = { node: 1, count: 4 };
  expect(nodeRendezvous(step, here)).toEqual({
    address: "gpu07:65535",
    from: "the first host of SLURM_STEP_NODELIST and a port made of SLURM_JOB_ID and SLURM_STEP_ID",
  });
  expect(nodeRendezvous(step, { node: 1, count: undefined })?.address).toBe("gpu07:65535");
  expect(nodeRendezvous({ ...step, MASTER_PORT: "5" }, here)).toEqual({
    address: "gpu07:5",
    from: "the first host of SLURM_STEP_NODELIST and MASTER_PORT",
  });
  expect(nodeRendezvous({ ...step, CHORALE_RDZV: "a:1" }, here)).toEqual({ address: "a:1", from: "CHORALE_RDZV" });
});
