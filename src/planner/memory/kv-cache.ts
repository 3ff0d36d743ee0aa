/** The KV cache: what one sequence keeps per layer on one rank. */
import type { AttentionSpec, LayerSpec, ModelSpec } from "../model/spec.ts";

/** Tokens of one page (vLLM's and SGLang's usual block); a sequence's last page is half empty on average, and counted. */
export const KV_PAGE_TOKENS = 16;

/** An indexer's keys are kept in FP8 whatever the cache is, with a scale of four bytes for 128 elements (vLLM, SGLang). */
const INDEX_KEY = { group: 128, scaleBytes: 4 };

export interface KvFormat {
  readonly bytes: number;
  readonly scaleBytesPerHead: number;
}

/** KV heads that a rank of tp holds: at least one, as heads are repeated when tp exceeds them. */
function kvHeadsPerRank(numKvHeads: number, tp: number): number {
  return Math.max(1, Math.ceil(numKvHeads / tp));
}

/** Bytes of one token in the cache that a layer attends to, on one tp rank. Latent attention caches the same vector on each of them. */
export function kvBytesPerToken(layer: LayerSpec, tp: number, format: KvFormat): number {
  const { attention } = layer;
  if (attention.kind === "none") return 0;
  if (attention.kind === "mla") {
    const { indexKeyDim = 0 } = attention;
    const indexKey = indexKeyDim + Math.ceil(indexKeyDim / INDEX_KEY.group) * INDEX_KEY.scaleBytes;
    return (attention.kvLoraRank + attention.qkRopeHeadDim) * format.bytes + format.scaleBytesPerHead + indexKey;
  }
  const heads = kvHeadsPerRank(attention.numKvHeads, tp);
  return 2 * heads * (attention.headDim * format.bytes + format.scaleBytesPerHead);
}

/** Vectors that a token attends to of `context` tokens before it: those in the window, and where groups are compressed theirs. */
export function attendedTokens(attention: AttentionSpec, context: number): number {
  if (attention.kind === "none") return 0;
  if (attention.kind === "gqa") return Math.min(context, attention.window ?? Number.POSITIVE_INFINITY);
  if (attention.compression === undefined) return context;
  const { window, ratio } = attention.compression;
  return Math.min(context, window) + (ratio === 0 ? 0 : context / ratio);
}

/** Vectors that a layer caches of a sequence: none where it uses another's cache; spread over cp ranks, in whole pages. */
export function cachedTokens(layer: LayerSpec, contextTokens: number, cp: number): number {
  if (layer.attention.kind === "gqa" && layer.attention.sharesCache === true) return 0;
  const kept = Math.ceil(attendedTokens(layer.attention, contextTokens));
  return Math.ceil(Math.ceil(kept / cp) / KV_PAGE_TOKENS) * KV_PAGE_TOKENS;
}

/** Bytes of a sequence's recurrent state in one layer on one tp rank: engines keep it in f32. */
export function stateBytes(layer: LayerSpec, tp: number): number {
  return Math.ceil((4 * (layer.stateElements ?? 0)) / tp);
}

/** Bytes of the caches of `sequences` sequences, for each layer of the model, on one rank. Zero for encoders. */
export function kvBytesByLayer(
  model: ModelSpec,
  options: { contextTokens: number; sequences: number; tp: number; cp: number; format: KvFormat },
): readonly number[] {
  const { contextTokens, sequences, tp, cp, format } = options;
  const byKind = model.layerKinds.map((kind) =>
    model.isDecoder
      ? Math.ceil(
          sequences *
            (cachedTokens(kind, contextTokens, cp) * kvBytesPerToken(kind, tp, format) + stateBytes(kind, tp)),
        )
      : 0,
  );
  return model.layers.map((kind) => byKind[kind] ?? 0);
}
