/** What `chorale launch` makes of the variables of another starter. */
import { expect, it } from "vitest";
import { describeHosts, hostsOf, worldsApart } from "./launch-hosts.ts";

it("tells of launchers that another program started side by side, each with a world of its own", () => {
  expect(worldsApart({ OMPI_COMM_WORLD_RANK: "1", OMPI_COMM_WORLD_SIZE: "4" })).toBe(
    "Open MPI started this launcher as number 1 of 4 (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE), and each forms a world of its own; one world of all: --backend tcp --nnodes env --node-rank env",
  );
  for (const one of [{}, { SLURM_PROCID: "0", SLURM_STEP_NUM_TASKS: "1" }, { RANK: "3" }])
    expect(worldsApart(one)).toBeUndefined();
});

it("says that a starter does not know how many hosts there are, or knows of none", () => {
  const before = { ...process.env };
  try {
    process.env["JOB_COMPLETION_INDEX"] = "1";
    expect(() => hostsOf({ n: 2, nnodes: "env", nodeRank: "env", rdzv: "h:1" })).toThrow(
      /--nnodes is env, and no variable here says how many hosts there are; expected the number of hosts/,
    );
    process.env["PET_NODE_RANK"] = "0";
    process.env["PET_NNODES"] = "0";
    expect(() => hostsOf({ n: 2, nnodes: "env", nodeRank: "env", rdzv: "h:1" })).toThrow(
      /PET_NNODES is 0; expected a number of hosts, 1 or more/,
    );
  } finally {
    process.env = before;
  }
});

it("derives where hosts meet from Slurm's list, says so, and lets an option go before it", () => {
  const before = { ...process.env };
  try {
    const flags = { n: 2, nnodes: "env", nodeRank: "env" } as const;
    Object.assign(process.env, { SLURM_PROCID: "0", SLURM_STEP_NUM_TASKS: "2", SLURM_STEP_TASKS_PER_NODE: "1(x2)" });
    expect(() => hostsOf(flags)).toThrow(
      /--rdzv is not given; expected HOST:PORT.*only under srun, with one task a host/,
    );
    Object.assign(process.env, { SLURM_STEP_NODELIST: "node[01-02]", SLURM_JOB_ID: "77" });
    expect(describeHosts(hostsOf(flags), [], "tcp, a.ts")).toEqual([
      "this is host 0 of 2: 2 ranks, tcp, a.ts; listens at node01:61517 (the first host of SLURM_STEP_NODELIST and a port made of SLURM_JOB_ID) and supervises all ranks",
    ]);
    expect(describeHosts(hostsOf({ ...flags, rdzv: "h:1" }), [], "tcp, a.ts")).toEqual([
      "this is host 0 of 2: 2 ranks, tcp, a.ts; listens at h:1 and supervises all ranks",
    ]);
    // Elastic worlds, and scripts that write the numbers out.
    for (const more of [{ nnodes: { min: 1, max: 4 } }, { nnodes: 2, nodeRank: 0 }])
      expect(hostsOf({ ...flags, ...more }).nodes?.rendezvous).toBe("node01:61517");
    process.env["SLURM_STEP_NODELIST"] = "node[01-";
    expect(() => hostsOf(flags)).toThrow(/SLURM_STEP_NODELIST is "node\[01-".*a bracket is not closed/);
    expect(hostsOf({ ...flags, rdzv: "h:1" }).nodes?.rendezvous).toBe("h:1");
  } finally {
    process.env = before;
  }
});
