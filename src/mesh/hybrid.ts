/**
 * Meshes over several nodes, where links within a node are far faster than between nodes: some axes stay within a node,
 * the others go across. Ranks are numbered node by node, as every launcher does.
 */
import { InvalidArgumentError } from "../core/index.ts";
import { described } from "../core/internal.ts";
import { type AxisSizes, formatSizes, resolveAxes } from "./axes.ts";
import { createMesh, type DeviceMesh, type MeshOptions } from "./device-mesh.ts";

export interface HybridOptions<Across extends AxisSizes, Within extends AxisSizes>
  extends Omit<MeshOptions, "worldSize"> {
  readonly numNodes: number;
  readonly ranksPerNode: number;
  /** Axes over nodes; they multiply to `numNodes`. */
  readonly across: Across;
  /** Axes within a node; they multiply to `ranksPerNode`. */
  readonly within: Within;
}

/**
 * Makes a mesh whose `within` axes never leave a node. The last axis of `across` may be the first of `within` too: the
 * two parts become one axis.
 * @throws InvalidArgumentError with the equation of the part that does not multiply, or for another repeated axis
 * @example
 * import { hybridMesh } from "chorale/mesh";
 *
 * const mesh = hybridMesh({ numNodes: 2, ranksPerNode: 8, across: { dp: 2 }, within: { dp: 2, tp: 4 } });
 * console.log(mesh.shape); // { dp: 4, tp: 4 }
 */
export function hybridMesh<const Across extends AxisSizes, const Within extends AxisSizes>(
  options: HybridOptions<Across, Within>,
): DeviceMesh<(keyof Across | keyof Within) & string> {
  const { numNodes, ranksPerNode, across, within, ...rest } = options;
  const outer = resolveAxes(across, numNodes);
  const inner = resolveAxes(within, ranksPerNode);
  const joint = outer.at(-1)?.name === inner[0]?.name ? outer.at(-1)?.name : undefined;
  const repeated = inner.find(({ name }) => name !== joint && outer.some((axis) => axis.name === name));
  if (repeated !== undefined) {
    throw new InvalidArgumentError(
      "axes",
      described(`across ${formatSizes(across)}, within ${formatSizes(within)}`),
      `axis ${repeated.name} in one of them, or last of across and first of within: ranks along it must be evenly spaced`,
    );
  }
  const sizes = new Map<string, number>();
  for (const { name, size } of [...outer, ...inner]) sizes.set(name, (sizes.get(name) ?? 1) * size);
  return createMesh(Object.fromEntries(sizes), { ...rest, worldSize: numNodes * ranksPerNode }) as DeviceMesh<
    (keyof Across | keyof Within) & string
  >;
}
