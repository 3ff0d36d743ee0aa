/** A module with a default function. */
import type { World } from "chorale";

export default async (world: World, data: { readonly base: number }): Promise<{ sum: number; base: number }> => {
  const mesh = world.mesh({ dp: "auto", tp: 2 });
  const tp = await world.communicator(mesh, "tp");
  const x = world.tensor("i32", [1]);
  x.data[0] = world.rank;
  await tp.allReduce(x);
  return { sum: x.data[0] ?? -1, base: data.base };
};
