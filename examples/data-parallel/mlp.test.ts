import { describe, expect, it } from "vitest";
import { Mlp } from "./mlp.ts";
import { randomFrom } from "./spirals.ts";
import { train } from "./train.ts";

describe("Mlp", () => {
  it("has the gradient that finite differences have", () => {
    const model = new Mlp([2, 5, 4, 3]);
    const random = randomFrom(3);
    const parameters = new Float32Array(model.numParameters);
    model.initialize(parameters, random);
    const batch = Array.from({ length: 4 }, (_, i) => ({ input: [random(), -random()], label: i % 3 }));
    const loss = (p: Float32Array) => model.backward(p, batch, 0.25, new Float32Array(p.length));
    const gradient = new Float32Array(model.numParameters);
    const order: number[] = [];
    model.backward(parameters, batch, 0.25, gradient, ({ start }) => order.push(start));
    expect(order).toEqual(model.layers.map(({ start }) => start).reverse());
    for (let i = 0; i < parameters.length; i++) {
      const [up, down] = [parameters.slice(), parameters.slice()];
      up[i]! += 2 ** -8;
      down[i]! -= 2 ** -8;
      expect(gradient[i]).toBeCloseTo((loss(up) - loss(down)) / (up[i]! - down[i]!), 4);
    }
  });

  it("learns", async () => {
    const { losses, accuracy } = await train(undefined);
    expect(losses[0]).toBeGreaterThan(0.9);
    expect(losses.at(-1)).toBeLessThan(0.2);
    expect(accuracy).toBeGreaterThan(0.95);
  });
});
