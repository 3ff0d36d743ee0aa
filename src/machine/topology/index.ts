/**
 * The graph of a machine: devices, NICs, switches and the links between them; islands, paths, rings; presets.
 * Refuses to look at this machine (hardware/ does), and to state a rate or a link that no source gave.
 * Start with inventory.ts, the schema that all else reads; then graph.ts, the questions to it.
 */

export { type CloudInstance, cloudInstance } from "./cloud-instances.ts";
export { composeInventory, INFINIBAND_RATES, type NicSpec, parseNic, parseSystem } from "./compose.ts";
export { idPrefix } from "./device-ids.ts";
export {
  bottleneckGBps,
  FAST_KINDS,
  type Island,
  islands,
  LINK_DEFAULTS,
  type LinkCost,
  linkCost,
  type Path,
  pathCost,
  shortestPath,
  widestPath,
} from "./graph.ts";
export {
  type Device,
  deviceSchema,
  FAMILIES,
  type Family,
  INVENTORY_SCHEMA_VERSION,
  type Inventory,
  inventorySchema,
  LINK_KINDS,
  type Link,
  type LinkKind,
  linkSchema,
  NODE_KINDS,
  nodeSchema,
  type Pair,
  pairSchema,
  type Topology,
  type TopologyNode,
  topologySchema,
  warningSchema,
} from "./inventory.ts";
export { relate } from "./pair-relation.ts";
export type { Part } from "./parts/part.ts";
export { APPLE_CHIPS, dtypesOf, findPart, PARTS, partByKey, partFields } from "./parts.ts";
export { type Preset, pcieGBps } from "./preset-builder.ts";
export { findPreset, PRESET_NAMES, presetInventory } from "./presets.ts";
export { type Ring, ringOrder, ringOrders } from "./rings.ts";
export { usableDevices } from "./usable-devices.ts";
