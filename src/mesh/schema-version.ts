/** Version of the mesh as a document; raised when an older reader could misread it. */
export const MESH_SCHEMA_VERSION = 1;
