/** The mesh as a document: what `DeviceMesh.toJSON()` writes and `parseMesh()` reads. */
import { z } from "zod";
import { deviceSchema } from "../machine/topology/index.ts";
import { MESH_SCHEMA_VERSION } from "./schema-version.ts";

const count = z.number().int().nonnegative();

export const meshSchema = z.object({
  schemaVersion: z.literal(MESH_SCHEMA_VERSION),
  /** Outermost first; the last is contiguous in rank order. */
  axes: z.array(z.object({ name: z.string().min(1), size: z.number().int().positive() })).min(1),
  /** One device per rank, by rank. Ranks may share a device. */
  devices: z.array(deviceSchema).optional(),
  /** World ranks, in group order. */
  customGroups: z.array(z.object({ name: z.string().min(1), ranks: z.array(count).min(1) })),
});
export type MeshDocument = z.infer<typeof meshSchema>;
