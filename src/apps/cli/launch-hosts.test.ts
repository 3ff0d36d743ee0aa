/** What `chorale launch` makes of the variables of another starter. */
import { expect, it } from "vitest";
import { hostsOf, worldsApart } from "./launch-hosts.ts";

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
