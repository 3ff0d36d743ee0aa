/**
 * LLaVA and its kin: a text model of any known type behind a tower of CLIP's or SigLIP's shape and a projector of two
 * matrices. Their configs leave out what the text model's class has as a default: for Llama, the fields of Llama 2 7B.
 */
import { ConfigReader } from "../../foreign/formats/index.ts";
import { type Architecture, textConfig } from "./draft.ts";
import { clipVisionTower } from "./vision.ts";

const LLAMA_DEFAULTS = {
  hidden_size: 4096,
  intermediate_size: 11_008,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  vocab_size: 32_000,
};
const MISTRAL_DEFAULTS = { ...LLAMA_DEFAULTS, intermediate_size: 14_336, num_key_value_heads: 8 };

/** @param textModel describes the text model by its own `model_type` */
export const llava =
  (textModel: Architecture): Architecture =>
  (config) => {
    const text = textConfig(config);
    const type = text.optionalString("model_type") ?? "llama";
    const defaults = type === "llama" ? LLAMA_DEFAULTS : type === "mistral" ? MISTRAL_DEFAULTS : {};
    const given = Object.fromEntries(text.names().map((name) => [name, text.raw(name)]));
    const draft = textModel(
      new ConfigReader({ ...defaults, ...given, model_type: type }, `${config.where}: text_config`),
    );
    const vision = config.optionalObject("vision_config") ?? new ConfigReader({}, config.where);
    return { ...draft, embeddings: [...draft.embeddings, ...clipVisionTower(vision, draft.hiddenSize)] };
  };
