/** The planner: a model and an inventory in, sharding plans out. */

export {
  DEFAULT_PRICES,
  type Instance,
  instancesFor,
  PRICES_SCHEMA_VERSION,
  type PriceCatalogue,
  priceCatalogueSchema,
  readPrices,
  withPrice,
} from "./cost/prices.ts";
export * from "./export/export.ts";
export {
  effectiveBits,
  FORMAT_NAMES,
  KV_FORMATS,
  type KvFormatName,
  kvFormat,
  type WeightFormat,
  weightFormat,
} from "./memory/formats.ts";
export {
  estimateTrainingMemory,
  type MethodSpec,
  TRAINING_METHODS,
  type TrainingMemory,
  type TrainingMethod,
  trainingMethod,
  type ZeroStage,
} from "./memory/training.ts";
export { modelBytes } from "./memory/weights.ts";
export { ARCHITECTURES } from "./model/architectures.ts";
export { modelFromConfig, modelFromConfigText } from "./model/from-config.ts";
export { modelFromCount, parseParameterCount } from "./model/from-count.ts";
export { modelFromGguf } from "./model/from-gguf.ts";
export { loadModel } from "./model/load.ts";
export { findModelPreset, MODEL_CONFIGS, MODEL_PRESETS, modelPreset } from "./model/presets.ts";
export * from "./model/spec.ts";
export * from "./plan.ts";
export { type PlanOutcome, type PlanRequest, planModel } from "./plan-model.ts";
export { axesText, explainLines, renderNothing, renderPlan } from "./render.ts";
export * from "./requirements.ts";
export * from "./what-if.ts";
