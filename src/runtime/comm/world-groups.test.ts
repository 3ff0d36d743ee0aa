import { expect, it } from "vitest";
import { closeEach, GroupOpenings } from "./world-groups.ts";

it("numbers the openings of each name and ranks apart", () => {
  const openings = new GroupOpenings();
  const given = [
    openings.next("a", [0, 1]),
    openings.next("a", [0, 1]),
    openings.next("a", [1, 0]),
    openings.next("b", [0, 1]),
  ];
  expect(given).toEqual([0, 1, 0, 0]);
});

it("closes the rest too when one cannot be closed, and gives the first failure, whatever was thrown", async () => {
  const closed: number[] = [];
  const communicator = (n: number, failure?: { readonly thrown: unknown }) => ({
    close: async () => {
      closed.push(n);
      if (failure !== undefined) throw failure.thrown;
    },
  });
  const all = [communicator(1), communicator(2, { thrown: undefined }), communicator(3, { thrown: "later" })];
  expect(await closeEach(all)).toEqual({ error: undefined });
  expect(closed).toEqual([1, 2, 3]);
  expect(await closeEach([communicator(4)])).toBeUndefined();
});
