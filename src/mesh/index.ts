/**
 * Device meshes: named axes over ranks, process groups as plain data, and their document.
 * Refuses to talk: a group becomes a communicator in runtime/world. Refuses shapes that do not multiply to the ranks.
 * Start with device-mesh.ts; internal.ts is the door for what every rank loads when it starts.
 */
export { type Axis, type AxisSizes, formatSizes } from "./axes.ts";
export { type DeviceBackend, deviceBackend } from "./device-backend.ts";
export { createMesh, DeviceMesh, type MeshOptions, WORLD_GROUP } from "./device-mesh.ts";
export { formatGrid } from "./grid.ts";
export type { ProcessGroup } from "./groups.ts";
export { type HybridOptions, hybridMesh } from "./hybrid.ts";
export { parseMesh } from "./parse-mesh.ts";
export { type MeshDocument, meshSchema } from "./schema.ts";
export { MESH_SCHEMA_VERSION } from "./schema-version.ts";
export { computeUnits, type MeshStats } from "./stats.ts";
export { type MeshTopology, meshFor, replicaSize, type TopologyAxes } from "./strategies.ts";
