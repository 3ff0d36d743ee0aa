export { type Axis, type AxisSizes, formatSizes } from "./axes.ts";
export { type DeviceBackend, deviceBackend } from "./device-backend.ts";
export { createMesh, DeviceMesh, type MeshOptions, parseMesh, WORLD_GROUP } from "./device-mesh.ts";
export { formatGrid } from "./grid.ts";
export type { ProcessGroup } from "./groups.ts";
export { type HybridOptions, hybridMesh } from "./hybrid.ts";
export { MESH_SCHEMA_VERSION, type MeshDocument, meshSchema } from "./schema.ts";
export { computeUnits, type MeshStats } from "./stats.ts";
export { type MeshTopology, meshFor, replicaSize, type TopologyAxes } from "./strategies.ts";
