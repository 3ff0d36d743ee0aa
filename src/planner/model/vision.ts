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

/** What every tower has; a config that leaves one out means its class's default. */
function sizesOf(
  vision: ConfigReader,
  [hidden, intermediate, layers, patch]: readonly [hidden: number, intermediate: number, layers: number, patch: number],
  prefix = "",
  names: { readonly hidden?: readonly string[]; readonly layers?: readonly string[] } = {},
) {
  return {
    hidden: vision.int(names.hidden ?? `${prefix}hidden_size`, { default: hidden, max: 1 << 16 }),
    intermediate: vision.int(`${prefix}intermediate_size`, { default: intermediate, max: 1 << 20 }),
    layers: vision.int(names.layers ?? `${prefix}num_hidden_layers`, { default: layers, max: 1024 }),
    patch: vision.int("patch_size", { default: patch, max: 1 << 12 }),
  };
}

/** SigLIP and Gemma 3's projector. */
export function gemma3VisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const { hidden, intermediate, layers, patch } = sizesOf(vision, [1152, 4304, 27, 14]);
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
  const { hidden, intermediate, layers, patch } = sizesOf(vision, [768, 5632, 34, 14]);
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

/** Qwen2.5-VL's tower: gated MLPs, then a merger of four patches into one token. Qwen2-VL's has plain MLPs. */
export function qwen2VisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const names = { hidden: ["hidden_size", "embed_dim"], layers: ["depth", "num_hidden_layers"] };
  const { hidden, intermediate, layers, patch } = sizesOf(vision, [1280, 3420, 32, 14], "", names);
  const merged = 4 * hidden;
  return [
    whole("vision.patch.weight", [hidden, 6 * patch * patch]),
    whole("vision.attention.weight", [4, hidden, hidden], layers),
    whole("vision.attention.bias", [4, hidden], layers),
    whole("vision.mlp.weight", [3, hidden, intermediate], layers),
    whole("vision.mlp.bias", [hidden + 2 * intermediate], layers),
    whole("vision.norms", [2, hidden], layers),
    whole("merger.norm", [hidden]),
    whole("merger.fc1", [merged + 1, merged]),
    whole("merger.fc2", [merged + 1, textHidden]),
  ];
}

/** Qwen3-VL's tower, with the merger and three more of its kind for deeper layers of the text model (`deepMergers`). */
export function qwen3VisionTower(vision: ConfigReader, textHidden: number, deepMergers = 3): WeightSpec[] {
  const names = { layers: ["depth", "num_hidden_layers"] };
  const { hidden, intermediate, layers, patch } = sizesOf(vision, [1152, 4304, 27, 16], "", names);
  const positions = vision.int("num_position_embeddings", { default: 2304, max: 1 << 24 });
  const mergers = 1 + (vision.optionalInts("deepstack_visual_indexes")?.length ?? deepMergers);
  const merged = 4 * hidden;
  return [
    whole("vision.patch.weight", [hidden, 6 * patch * patch + 1]),
    whole("vision.position", [positions, hidden]),
    ...encoderLayer(hidden, intermediate, layers),
    whole("merger.norm", [2 * merged], mergers),
    whole("merger.fc1", [merged + 1, merged], mergers),
    whole("merger.fc2", [merged + 1, textHidden], mergers),
  ];
}

/** Pixtral's tower: gated MLPs, no biases; Mistral 3 merges four patches before its projector. */
export function pixtralVisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const { hidden, intermediate, layers, patch } = sizesOf(vision, [1024, 4096, 24, 14]);
  return [
    whole("vision.patch.weight", [hidden, 3 * patch * patch]),
    whole("vision.attention.weight", [4, hidden, hidden], layers),
    whole("vision.mlp.weight", [3, hidden, intermediate], layers),
    whole("vision.norms", [2, hidden], layers),
    whole("projector.merger", [4 * hidden, hidden]),
    whole("projector.fc1", [hidden, textHidden]),
    whole("projector.fc2", [textHidden, textHidden]),
  ];
}

/** Llama 3.2 Vision's tower: 32 local and 8 global layers over four tiles. */
export function mllamaVisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const { hidden, intermediate, layers: local, patch } = sizesOf(vision, [1280, 5120, 32, 14]);
  const layers = local + vision.int("num_global_layers", { default: 8, max: 1024 });
  const image = vision.int("image_size", { default: 560, max: 1 << 16 });
  const tiles = vision.int("max_num_tiles", { default: 4, max: 64 });
  const output = vision.int("vision_output_dim", { default: 7680, max: 1 << 16 });
  const positions = patches(vision, image, patch) + 1;
  return [
    whole("vision.patch.weight", [hidden, 3 * patch * patch]),
    whole("vision.position", [positions + 1, hidden]),
    // Eight aspect ratios and none, each with positions for every tile.
    whole("vision.tile_position", [9, tiles * positions * hidden]),
    whole("vision.tile_embeddings", [2 * 9, tiles * hidden]),
    ...encoderLayer(hidden, intermediate, layers),
    whole("vision.norms", [2, 2 * hidden]),
    whole("projector.weight", [output + 1, textHidden]),
  ];
}

/** Qwen3.5's tower: Qwen3-VL's without the mergers for deeper layers. */
export function qwen35VisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  return qwen3VisionTower(vision, textHidden, 0);
}

/** Gemma 4's tower: gated MLPs, norms on queries and keys, a table of positions for rows and one for columns. */
export function gemma4VisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const { hidden, intermediate, layers, patch } = sizesOf(vision, [768, 3072, 16, 16]);
  const positions = vision.int("position_embedding_size", { default: 10_240, max: 1 << 24 });
  return [
    whole("vision.patch.weight", [hidden, 3 * patch * patch]),
    whole("vision.position", [2, positions * hidden]),
    whole("vision.attention.weight", [4, hidden, hidden], layers),
    whole("vision.mlp.weight", [3, hidden, intermediate], layers),
    whole("vision.norms", [4, hidden], layers),
    whole("projector.weight", [hidden, textHidden]),
  ];
}

/** Gemma 4's audio encoder: conformer layers of two half MLPs, attention with relative positions and a convolution. */
export function gemma4AudioTower(audio: ConfigReader, textHidden: number): WeightSpec[] {
  const hidden = audio.int("hidden_size", { default: 1024, max: 1 << 16 });
  const layers = audio.int("num_hidden_layers", { default: 12, max: 1024 });
  const kernel = audio.int("conv_kernel_size", { default: 5, max: 1 << 10 });
  const output = audio.int("output_proj_dims", { default: 1536, max: 1 << 16 });
  return [
    whole("audio.mlp.weight", [4, hidden, 4 * hidden], layers),
    // Queries, keys, values, output and relative positions.
    whole("audio.attention.weight", [5, hidden, hidden], layers),
    whole("audio.convolution.weight", [3, hidden, hidden], layers),
    whole("audio.depthwise", [kernel, hidden], layers),
    whole("audio.norms", [7, hidden], layers),
    whole("audio.subsampling.weight", [hidden, hidden]),
    whole("audio.output.weight", [output, hidden]),
    whole("audio.projector.weight", [output, textHidden]),
  ];
}

/** Kimi K2.5's MoonViT: an encoder layer of SigLIP's shape, four patches merged into one token. */
export function kimiVisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const { hidden, intermediate, layers, patch } = sizesOf(vision, [1152, 4304, 27, 14], "vt_");
  const rows = vision.int("init_pos_emb_height", { default: 64, max: 1 << 12 });
  const merged = 4 * hidden;
  return [
    whole("vision.patch.weight", [hidden, 3 * patch * patch + 1]),
    whole("vision.position", [rows * rows, hidden]),
    ...encoderLayer(hidden, intermediate, layers),
    whole("projector.fc1", [merged + 1, merged]),
    whole("projector.fc2", [merged + 1, textHidden]),
  ];
}

/** CLIP's ViT-L/14 at 336 pixels, as LLaVA has it, and a projector of two matrices. SigLIP's shape is alike. */
export function clipVisionTower(vision: ConfigReader, textHidden: number): WeightSpec[] {
  const { hidden, intermediate, layers, patch } = sizesOf(vision, [1024, 4096, 24, 14]);
  const image = vision.int("image_size", { default: 336, max: 1 << 16 });
  const positions = Math.floor(image / patch) ** 2 + 1;
  return [
    whole("vision.patch.weight", [hidden, 3 * patch * patch + 1]),
    whole("vision.position", [positions, hidden]),
    whole("vision.norms", [2, 2 * hidden]),
    ...encoderLayer(hidden, intermediate, layers),
    whole("projector.fc1", [hidden + 1, textHidden]),
    whole("projector.fc2", [textHidden + 1, textHidden]),
  ];
}
