/**
 * The mesh's second door, for the root and for ranks: everything but the reading of documents, which loads zod.
 * It is no place for code: chorale/mesh is the public entry.
 * Start reading at device-mesh.ts.
 */
export type { AxisSizes } from "./axes.ts";
export { createMesh, DeviceMesh, type MeshOptions } from "./device-mesh.ts";
export type { ProcessGroup } from "./groups.ts";
export { hybridMesh } from "./hybrid.ts";
