/**
 * The mesh's second door, for the root and for ranks: everything but the reading of documents, which loads zod.
 * It is no place for code: chorale/mesh is the public entry.
 * Start reading at device-mesh.ts.
 */
export { type Axis, type AxisSizes, formatSizes } from "./axes.ts";
export { type DeviceBackend, deviceBackend } from "./device-backend.ts";
export { createMesh, DeviceMesh, type MeshOptions } from "./device-mesh.ts";
export { formatGrid } from "./grid.ts";
export { type ProcessGroup, WORLD_GROUP } from "./groups.ts";
export { type HybridOptions, hybridMesh } from "./hybrid.ts";
export type { MeshDocument } from "./schema.ts";
export { MESH_SCHEMA_VERSION } from "./schema-version.ts";
export { computeUnits, type MeshStats } from "./stats.ts";
export { type MeshTopology, meshFor, replicaSize, type TopologyAxes } from "./strategies.ts";
