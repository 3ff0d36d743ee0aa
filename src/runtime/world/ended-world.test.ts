import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, it } from "vitest";
import { RankFailedError } from "../../core/index.ts";
import type { Backend } from "../comm/index.ts";
import { createWorld, type World } from "./world.ts";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

/** A backend whose failure comes of a call of its own, as it does of a group that hears of a dead rank. */
class FailingBackend {
  readonly rank = 0;
  readonly worldSize = 2;
  readonly generation = 1;
  readonly name = "failing";
  /** A frame's receiver and its variables are what an error keeps. */
  fail(): RankFailedError {
    const make = () => new RankFailedError(this.worldSize - 1, this.generation, new Error("it died"));
    return make();
  }
  abandon(): void {}
}

/** A world that has failed, was rebuilt, and is still in its program's hands. */
async function endedWorld(): Promise<{ world: World; backend: WeakRef<object> }> {
  const backend = new FailingBackend();
  let tell: (error: Error) => void = () => {};
  const world: World = createWorld(backend as unknown as Backend, {
    args: [],
    data: undefined,
    onFailure: (listener) => {
      tell = listener;
    },
    rebuild: { refusal: undefined, request: async () => world },
  });
  tell(backend.fail());
  await world.rebuild();
  return { world, backend: new WeakRef(backend) };
}

it("a world that was rebuilt keeps what ended it, and nothing of its backend", async () => {
  const { world, backend } = await endedWorld();
  for (let i = 0; i < 3; i++) {
    // A reference that was looked at lives until its turn of the event loop ends.
    await new Promise((resolve) => setImmediate(resolve));
    collect();
  }
  expect(backend.deref()).toBeUndefined();
  expect(world.signal.reason).toMatchObject({ code: "RANK_FAILED", rank: 1 });
  expect(String((world.signal.reason as Error).stack)).toContain("fail");
});
