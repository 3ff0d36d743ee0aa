/**
 * Reads a mesh from its document. Apart from the mesh itself, whose file loads no zod: each rank of a world loads that
 * file when it starts, and zod's modules took a third of the time.
 */
import { FormatError, InvalidArgumentError } from "../core/index.ts";
import { createMesh, type DeviceMesh } from "./device-mesh.ts";
import { meshSchema } from "./schema.ts";

/**
 * Reads what `toJSON` wrote.
 * @throws FormatError naming the field that is wrong
 */
export function parseMesh(document: unknown, where = "mesh"): DeviceMesh {
  const parsed = meshSchema.safeParse(document);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw new FormatError(where, issue?.message ?? "is no mesh", { field: issue?.path.join(".") || "document" });
  }
  const { axes, devices, customGroups } = parsed.data;
  const sizes = Object.fromEntries(axes.map(({ name, size }) => [name, size]));
  if (Object.keys(sizes).length !== axes.length) throw new FormatError(where, "an axis comes twice", { field: "axes" });
  try {
    const options = { allowMixedFamilies: true, ...(devices === undefined ? {} : { devices }) };
    return customGroups.reduce<DeviceMesh>(
      (mesh, { name, ranks }) => mesh.addGroup(name, ranks),
      createMesh(sizes, options),
    );
  } catch (cause) {
    if (!(cause instanceof InvalidArgumentError)) throw cause;
    throw new FormatError(where, cause.message, { cause });
  }
}
