/** A multilayer perceptron with tanh and a softmax, its gradient written out by hand. All parameters are one flat array. */

interface LayerShape {
  readonly inputs: number;
  readonly outputs: number;
  /** Where its parameters lie: `outputs` rows of `inputs` weights and a bias. */
  readonly start: number;
  readonly end: number;
}

export class Mlp {
  readonly layers: readonly LayerShape[];
  readonly numParameters: number;

  /** @param sizes of the input, the hidden layers, and the output */
  constructor(sizes: readonly number[]) {
    let at = 0;
    this.layers = sizes.slice(1).map((outputs, i) => {
      const inputs = sizes[i] as number;
      const start = at;
      at += outputs * (inputs + 1);
      return { inputs, outputs, start, end: at };
    });
    this.numParameters = at;
  }

  /** Fills `parameters` with small random weights and zero biases. */
  initialize(parameters: Float32Array, random: () => number): void {
    for (const { inputs, outputs, start } of this.layers) {
      for (let row = 0; row < outputs; row++) {
        const at = start + row * (inputs + 1);
        for (let i = 0; i < inputs; i++) parameters[at + i] = (random() * 2 - 1) * Math.sqrt(3 / inputs);
        parameters[at + inputs] = 0;
      }
    }
  }

  /** Outputs of every layer, the last before its softmax. */
  forward(parameters: Float32Array, input: ArrayLike<number>): Float64Array[] {
    const outputs: Float64Array[] = [];
    let x = input;
    for (const [index, layer] of this.layers.entries()) {
      const y = new Float64Array(layer.outputs);
      for (let row = 0; row < layer.outputs; row++) {
        const at = layer.start + row * (layer.inputs + 1);
        let sum = parameters[at + layer.inputs]!;
        for (let i = 0; i < layer.inputs; i++) sum += parameters[at + i]! * x[i]!;
        y[row] = index === this.layers.length - 1 ? sum : Math.tanh(sum);
      }
      outputs.push(y);
      x = y;
    }
    return outputs;
  }

  /**
   * Mean cross-entropy of a batch, each sample weighted by `weight`, and its gradient added to `gradient`.
   * @param layerDone is called as soon as a layer's gradient is complete, the last layer first, with the loss
   * @returns the weighted sum of the losses
   */
  backward(
    parameters: Float32Array,
    batch: readonly { readonly input: ArrayLike<number>; readonly label: number }[],
    weight: number,
    gradient: Float32Array,
    layerDone: (layer: LayerShape, loss: number) => void = () => {},
  ): number {
    const activations = batch.map(({ input }) => this.forward(parameters, input));
    let loss = 0;
    // Derivative of the loss by each output before its activation, one per sample.
    let deltas = batch.map(({ label }, s) => {
      const logits = activations[s]!.at(-1) as Float64Array;
      const max = Math.max(...logits);
      const exps = logits.map((z) => Math.exp(z - max));
      const total = exps.reduce((a, b) => a + b, 0);
      loss -= weight * Math.log(exps[label]! / total);
      return exps.map((e, i) => weight * (e / total - (i === label ? 1 : 0)));
    });
    for (let index = this.layers.length - 1; index >= 0; index--) {
      const layer = this.layers[index] as LayerShape;
      // Summed in float64 and stored once, so that the gradient is rounded once on each rank.
      const sums = new Float64Array(layer.end - layer.start);
      deltas = deltas.map((delta, s) => {
        const x = index === 0 ? (batch[s] as { input: ArrayLike<number> }).input : activations[s]![index - 1]!;
        const before = new Float64Array(layer.inputs);
        for (let row = 0; row < layer.outputs; row++) {
          const at = row * (layer.inputs + 1);
          const d = delta[row]!;
          for (let i = 0; i < layer.inputs; i++) {
            sums[at + i]! += d * x[i]!;
            before[i]! += d * parameters[layer.start + at + i]!;
          }
          sums[at + layer.inputs]! += d;
        }
        return before.map((d, i) => (index === 0 ? d : d * (1 - x[i]! * x[i]!)));
      });
      gradient.set(sums, layer.start);
      layerDone(layer, loss);
    }
    return loss;
  }
}
