/**
 * Vision towers of the multimodal models that the planner knows, as weights of the first stage: they take memory, though
 * decoding text does not touch them. Shapes from the modelling code of Hugging Face transformers.
 */
import type { ConfigReader } from "../../foreign/formats/index.ts";
import { weight } from "./build.ts";
import type { WeightSpec } from "./spec.ts";

const whole = (name: string, shape: readonly number[], copies = 1) => weight(name, "vision", shape, { copies });

/** A square number of patches. */
function patches(vision: ConfigReader, image: number, patch: number): number {
  if (image % patch !== 0) throw vision.error("image_size", `is ${image}; expected a multiple of patch_size ${patch}`);
  return (image / patch) ** 2;
}

function encoderLayer(hidden: number, intermediate: number, copies: number): WeightSpec[] {
  return [
    whole("vision.attention.weight", [4, hidden, hidden], copies),
    whole("vision.attention.bias", [4, hidden], copies),
    whole("vision.mlp.weight", [2, hidden, intermediate], copies),
    whole("vision.mlp.bias", [hidden + intermediate], copies),
    whole("vision.norms", [2, 2 * hidden], copies),
  ];
}

/** SigLIP and Gemma 3's projector. */
export function gemma3VisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const hidden = vision.int("hidden_size", { default: 1152, max: 1 << 16 });
  const intermediate = vision.int("intermediate_size", { default: 4304, max: 1 << 20 });
  const layers = vision.int("num_hidden_layers", { default: 27, max: 1024 });
  const patch = vision.int("patch_size", { default: 14, max: 1 << 12 });
  const image = vision.int("image_size", { default: 896, max: 1 << 16 });
  return [
    whole("vision.patch.weight", [hidden, 3 * patch * patch]),
    whole("vision.patch.bias", [hidden]),
    whole("vision.position", [patches(vision, image, patch), hidden]),
    ...encoderLayer(hidden, intermediate, layers),
    whole("vision.post_norm", [2 * hidden]),
    whole("projector.norm", [hidden]),
    whole("projector.weight", [hidden, textHidden]),
  ];
}

/** Llama 4's encoder, pixel-shuffle adapter and projector. */
export function llama4VisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const hidden = vision.int("hidden_size", { default: 768, max: 1 << 16 });
  const intermediate = vision.int("intermediate_size", { default: 5632, max: 1 << 20 });
  const layers = vision.int("num_hidden_layers", { default: 34, max: 1024 });
  const patch = vision.int("patch_size", { default: 14, max: 1 << 12 });
  const image = vision.int("image_size", { default: 448, max: 1 << 16 });
  const projectorIn = vision.int("projector_input_dim", { default: 4096, max: 1 << 16 });
  const projectorOut = vision.int("projector_output_dim", { default: 4096, max: 1 << 16 });
  const output = vision.int("vision_output_dim", { default: projectorOut, max: 1 << 16 });
  return [
    whole("vision.patch.weight", [hidden, 3 * patch * patch]),
    whole("vision.class", [hidden]),
    whole("vision.position", [patches(vision, image, patch) + 1, hidden]),
    whole("vision.pre_post_norm", [2, 2 * hidden]),
    ...encoderLayer(hidden, intermediate, layers),
    whole("vision.adapter.fc1", [intermediate, projectorIn]),
    whole("vision.adapter.fc2", [projectorIn, projectorOut]),
    whole("projector.weight", [output, textHidden]),
  ];
}
