/**
 * Encoder-decoders (T5, BART, Whisper and their kin), which the planner refuses by name and by config: their encoder runs
 * once per request, and their decoder caches the encoder's keys and values beside its own. Neither is modelled here, so an
 * answer would be wrong in memory and in time.
 */
import { UnsupportedError } from "../../core/index.ts";
import type { ConfigReader } from "../../foreign/formats/index.ts";

/** `model_type`s of Hugging Face transformers that are encoder-decoders; others say so in `is_encoder_decoder`. */
const TYPES: ReadonlySet<string> = new Set(
  (
    "t5 mt5 umt5 longt5 switch_transformers t5gemma t5gemma2 bart mbart plbart led bigbird_pegasus pegasus pegasus_x " +
    "blenderbot blenderbot-small marian m2m_100 nllb-moe fsmt prophetnet xlm-prophetnet mvp udop speech_to_text " +
    "speecht5 whisper moonshine moonshine_streaming seamless_m4t seamless_m4t_v2 musicgen musicgen_melody pix2struct florence2 " +
    "encoder-decoder speech-encoder-decoder vision-encoder-decoder"
  ).split(" "),
);

/** How their names begin, once the organisation is cut off. */
const NAMES =
  /^(?:(?:flan-|m|um|by|long-?|code)?t5p?|t5gemma|(?:flan-)?ul2|mt0|t0pp?|madlad-?400|(?:m|distil|pl)?bart|pegasus|blenderbot|m2m-?100|nllb|opus-mt|marian|seamless-m4t|(?:distil-|faster-)?whisper|distil-(?:small|medium|large)|moonshine)(?![a-z])/;

const WHY =
  "it is an encoder-decoder: the planner plans decoders (chat and completion models) and encoders (BERT and its kin) alone, " +
  "and does not model a decoder that also attends to an encoder";

/** @throws UnsupportedError when the name is that of an encoder-decoder */
export function refuseEncoderDecoderName(text: string): void {
  const name = text
    .trim()
    .toLowerCase()
    .replace(/^.*\//, "")
    .replace(/[\s_]+/g, "-");
  if (NAMES.test(name)) throw new UnsupportedError(`model ${JSON.stringify(text)}`, WHY);
}

/** @throws UnsupportedError when the config is that of an encoder-decoder */
export function refuseEncoderDecoder(config: ConfigReader, type: string): void {
  if (TYPES.has(type) || config.raw("is_encoder_decoder") === true) {
    throw new UnsupportedError(`model_type ${JSON.stringify(type)} (${config.where})`, WHY);
  }
}
