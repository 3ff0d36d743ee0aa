/** Text to tokens and back: tokenizer.json by @huggingface/tokenizers, or the 256 bytes of UTF-8 for a byte vocabulary. */
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import type * as Tokenizers from "@huggingface/tokenizers";
import { FormatError, InvalidArgumentError, UnavailableError } from "chorale";
import { readJsonFile } from "chorale/formats";

export interface TextCodec {
  encode(text: string): number[];
  /** Bytes that are UTF-8 text, or with a byte vocabulary any bytes. */
  encodeBytes(bytes: Uint8Array): number[];
  decode(tokens: readonly number[]): string;
}

const bytes: TextCodec = {
  encode: (text) => [...new TextEncoder().encode(text)],
  encodeBytes: (array) => [...array],
  decode: (tokens) => new TextDecoder().decode(Uint8Array.from(tokens)),
};

/**
 * Finds a model folder's tokenizer.
 * @returns `undefined` when it has none and its vocabulary is not that of bytes: then only token ids can be given
 * @throws FormatError when tokenizer.json cannot be read
 * @throws UnavailableError when there is one and the package that reads it is not installed
 */
export function openTokenizer(folder: string, vocabSize: number): TextCodec | undefined {
  const path = join(folder, "tokenizer.json");
  if (!existsSync(path)) return vocabSize === 256 ? bytes : undefined;
  const { Tokenizer } = tokenizers(path);
  const configPath = join(folder, "tokenizer_config.json");
  const config = existsSync(configPath) ? readJsonFile(configPath) : {};
  try {
    const tokenizer = new Tokenizer(readJsonFile(path) as object, config as object);
    const encode = (text: string) => [...tokenizer.encode(text).ids];
    return {
      encode,
      encodeBytes: (array) => encode(new TextDecoder().decode(array)),
      decode: (tokens) => tokenizer.decode([...tokens], { skip_special_tokens: true }),
    };
  } catch (cause) {
    if (cause instanceof FormatError) throw cause;
    throw new FormatError(
      path,
      `is no tokenizer that can be used (${cause instanceof Error ? cause.message : cause})`,
      {
        cause,
      },
    );
  }
}

/** The package, which chorale itself does not need. @throws UnavailableError */
function tokenizers(path: string): typeof Tokenizers {
  try {
    return createRequire(import.meta.url)("@huggingface/tokenizers") as typeof Tokenizers;
  } catch (cause) {
    const how = "Install it with: npm install @huggingface/tokenizers";
    throw new UnavailableError(`the package @huggingface/tokenizers, for ${path}`, "it is not installed", how, {
      cause,
    });
  }
}

/** What to continue: text, the bytes of a text, or token ids. */
export type Prompt =
  | { readonly text: string }
  | { readonly bytes: readonly number[] }
  | { readonly tokens: readonly number[] };

/**
 * Turns a prompt into token ids.
 * @throws InvalidArgumentError when there is no tokenizer for text, no token, or an id outside the vocabulary
 */
export function encodePrompt(prompt: Prompt, codec: TextCodec | undefined, vocabSize: number): number[] {
  const tokens = tokensOf(prompt, codec);
  const wrong = tokens.find((token) => !Number.isInteger(token) || token < 0 || token >= vocabSize);
  if (wrong !== undefined || tokens.length === 0) {
    throw new InvalidArgumentError(
      "prompt",
      wrong ?? "empty",
      `at least one token, each an integer from 0 to ${vocabSize - 1}`,
    );
  }
  return tokens;
}

function tokensOf(prompt: Prompt, codec: TextCodec | undefined): number[] {
  if ("tokens" in prompt) return [...prompt.tokens];
  const given = "text" in prompt ? prompt.text : prompt.bytes;
  if (codec === undefined) {
    throw new InvalidArgumentError("prompt", given, "token ids: this model folder has no tokenizer.json");
  }
  if ("text" in prompt) return codec.encode(prompt.text);
  const wrong = prompt.bytes.find((byte) => !Number.isInteger(byte) || byte < 0 || byte > 255);
  if (wrong !== undefined) throw new InvalidArgumentError("prompt", wrong, "bytes: integers from 0 to 255");
  return codec.encodeBytes(Uint8Array.from(prompt.bytes));
}
