/**
 * The planner: a model and an inventory in, sharding plans out, with memory, time and price.
 * Refuses to run anything: plans are data, and export/ writes them for the engines that do.
 * Start with plan-model.ts; search/ finds layouts, memory/ and cost/ judge them.
 */

export {
  DEFAULT_PRICES,
  type Instance,
  instancesFor,
  PRICES_SCHEMA_VERSION,
  type PriceCatalogue,
  priceCatalogueSchema,
  type Rental,
  readPrices,
  withPrice,
} from "./cost/prices.ts";
export { ENGINES, type Engine, type TimeConstants } from "./cost/profiles.ts";
export { type EstimateRange, rangeOf } from "./cost/ranges.ts";
export {
  type ComparedHardware,
  cheapestPlan,
  compareHardware,
  type Load,
  largestLoad,
  type ServiceLevel,
} from "./decide.ts";
export { type Disaggregated, disaggregate, type WorkerPool } from "./disaggregate.ts";
export { axisLimits, exportProblem } from "./engine-limits.ts";
export { DEVICE_SUPPORT, devicesOf, enginesFor, runsEngine } from "./export/device-support.ts";
export { ENGINE_NAMES, type EngineName, engineTitle, SERVING_TARGETS, TRAINING_TARGETS } from "./export/engines.ts";
export {
  EXPORT_TARGETS,
  EXPORT_VERSIONS,
  type Exported,
  type ExportOptions,
  type ExportTarget,
  exportedModel,
  exportPlan,
  FLAGS,
  numHostsOf,
  renderExport,
  visibleDevices,
} from "./export/export.ts";
export { hubId } from "./export/hub-ids.ts";
export {
  answerLoad,
  type ComparedLoad,
  compareLoads,
  type LoadAnswer,
  type LoadLimit,
  loadChanges,
} from "./load-limits.ts";
export { CHECKPOINTING, type Checkpointing } from "./memory/activations.ts";
export {
  effectiveBits,
  FORMAT_NAMES,
  findWeightFormat,
  KV_FORMATS,
  type KvFormatName,
  kvFormat,
  type WeightFormat,
  weightFormat,
} from "./memory/formats.ts";
export {
  estimateTrainingMemory,
  GRADIENT_FORMATS,
  type GradientFormat,
  type MethodSpec,
  OPTIMIZERS,
  type OptimizerName,
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
export {
  type AttentionSpec,
  COMPONENTS,
  type Component,
  type Cut,
  countParameters,
  type FullAttention,
  type LatentAttention,
  type LayerSpec,
  type MlpSpec,
  type ModelSpec,
  numTensorElements,
  type ParameterCounts,
  type StoredBytes,
  type WeightSpec,
} from "./model/spec.ts";
export { type MemoryShortfall, memoryShortfall, type NearestChange, nearestChanges } from "./nearest-changes.ts";
export {
  axisSizesSchema,
  BOTTLENECKS,
  type Bottleneck,
  fitsInMemory,
  type InferenceEstimates,
  inferenceEstimatesSchema,
  isValidPlan,
  type LayerRange,
  MEMORY_ITEMS,
  type MemoryItem,
  OBJECTIVES,
  type Objective,
  PLAN_AXES,
  type PlanAxis,
  type PlanAxisSizes,
  type PlanDevices,
  type PlannedRank,
  parsePlan,
  planProblems,
  type RankMemory,
  type Rejected,
  rankAt,
  rankMemorySchema,
  rankPlanSchema,
  rejectedSchema,
  SHARDING_PLAN_SCHEMA_VERSION,
  type ShardingPlan,
  type ShardingPlanProblem,
  shardingPlanSchema,
  type TrainingEstimates,
  trainingEstimatesSchema,
} from "./plan.ts";
export { type PlanOutcome, type PlanRequest, planModel } from "./plan-model.ts";
export { axesText, explainLines, nearLines, renderNothing, renderPlan } from "./render.ts";
export {
  bestDeviceFor,
  type DeviceRequirement,
  minDevices,
  parseRequirement,
  QUANTIZATION_LADDER,
  satisfies,
  satisfying,
  suggestQuantization,
} from "./requirements.ts";
export type { NearLayout } from "./search/near-layouts.ts";
export {
  LORA_TARGETS,
  type LoraTargets,
  OFFLOADS,
  type Offload,
  PIPELINE_SCHEDULES,
  type PipelineSchedule,
  type Speculation,
  TRAIN_PRECISIONS,
  type TrainPrecision,
} from "./search/workload.ts";
export {
  addDevices,
  changeLinks,
  replaceDevices,
  withoutDevices,
} from "./what-if.ts";
