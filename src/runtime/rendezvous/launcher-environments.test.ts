/** What other launchers' variables say of a process's place, and what is refused because it says half of it. */
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { scratchFolder } from "../../../test/helpers/scratch.ts";
import { foreignPlace, rendezvousAddress } from "./launcher-environments.ts";
import { rendezvousSecret } from "./secret.ts";

it("reads the place from the first launcher that says all of it", () => {
  const place = { rank: 1, size: 2, localRank: 1 };
  expect(foreignPlace({ RANK: "1", WORLD_SIZE: "2" })).toMatchObject({ ...place, launcher: "torchrun" });
  expect(foreignPlace({ RANK: "1", PMI_RANK: "1", PMI_SIZE: "2" })).toMatchObject({ ...place, launcher: "MPICH" });
  for (const one of [{}, { RANK: "0" }, { RANK: "0", WORLD_SIZE: "1" }, { WORLD_SIZE: "1" }, { SLURM_PROCID: "0" }])
    expect(foreignPlace(one)).toBeUndefined();
});

it("refuses half of a place, which would silently be a world of one in each process", () => {
  const said = (env: Record<string, string>) => () => foreignPlace(env);
  expect(said({ RANK: "1" })).toThrow(
    "WORLD_SIZE is not set; expected a number above RANK=1; or unset RANK for a world of 1",
  );
  expect(said({ RANK: "3", WORLD_SIZE: "1" })).toThrow(/WORLD_SIZE is "1"; expected a number above RANK=3/);
  expect(said({ PMI_RANK: "0", PMI_SIZE: "two" })).toThrow(/PMI_SIZE is "two"; expected a number from 1 on/);
  expect(said({ RANK: "0", WORLD_SIZE: "0" })).toThrow(/WORLD_SIZE is "0"; expected a number from 1 on/);
  expect(said({ RANK: "", WORLD_SIZE: "4" })).toThrow(
    /RANK is not set; expected 0 to 3, by WORLD_SIZE; or unset WORLD/,
  );
  expect(said({ RANK: "x", WORLD_SIZE: "4" })).toThrow(/RANK is "x"; expected a whole number/);
  const local = { RANK: "0", WORLD_SIZE: "2", LOCAL_WORLD_SIZE: "2" };
  expect(said({ ...local, LOCAL_RANK: "7" })).toThrow(/LOCAL_RANK is 7; expected 0 to 1, as LOCAL_WORLD_SIZE says/);
});

it("says which variable keeps the ranks from meeting", () => {
  expect(() => rendezvousAddress({})).toThrow(/neither CHORALE_RDZV nor MASTER_PORT is set/);
  expect(() => rendezvousAddress({ MASTER_PORT: "abc" })).toThrow(/MASTER_PORT is "abc"; expected a port/);
  expect(() => rendezvousAddress({ MASTER_PORT: "29500" }, true)).toThrow(/beside MASTER_PORT, MASTER_ADDR is set/);
  expect(rendezvousAddress({ MASTER_PORT: "29500" })).toEqual({ host: "127.0.0.1", port: 29_501 });
});

it("names the file whose secret is too short", () => {
  const file = join(scratchFolder("secret"), "secret");
  writeFileSync(file, "\n");
  chmodSync(file, 0o600);
  expect(() => rendezvousSecret({ CHORALE_SECRET_FILE: file })).toThrow(
    /CHORALE_SECRET_FILE is .*secret, which holds 0 characters; expected 16 at least/,
  );
});
