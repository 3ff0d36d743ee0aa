/** The usual ways to lay a model over ranks, as meshes: data, tensor (also over a 2-D grid), pipeline, and all mixed. */
import { InvalidArgumentError } from "../core/index.ts";
import { createMesh, type DeviceMesh, type MeshOptions } from "./device-mesh.ts";

export type MeshTopology =
  | { readonly kind: "data-parallel" }
  | {
      readonly kind: "tensor-parallel";
      readonly degree: number;
      /** Rows and columns of a 2-D tensor-parallel grid; they multiply to `degree`. */
      readonly meshShape?: readonly [rows: number, columns: number];
    }
  | { readonly kind: "pipeline-parallel"; readonly stages: number }
  | { readonly kind: "mixed"; readonly tp: number; readonly pp: number; readonly dp: number };

/** The axes that a topology gives. A 2-D tensor grid has `tpr` (rows) and `tpc` (columns) in place of `tp`. */
export interface TopologyAxes {
  readonly "data-parallel": "dp";
  readonly "tensor-parallel": "dp" | "tp" | "tpr" | "tpc";
  readonly "pipeline-parallel": "dp" | "pp";
  readonly mixed: "dp" | "pp" | "tp";
}

/** Ranks of one replica of the model: the least that a world must have. */
export function replicaSize(topology: MeshTopology): number {
  switch (topology.kind) {
    case "data-parallel":
      return 1;
    case "tensor-parallel":
      return topology.degree;
    case "pipeline-parallel":
      return topology.stages;
    case "mixed":
      return topology.tp * topology.pp * topology.dp;
  }
}

/**
 * Makes the mesh of a topology. What one replica leaves over becomes the data-parallel axis, so that no rank is idle.
 * @throws InvalidArgumentError with the whole equation when the ranks are not a multiple of a replica
 * @example
 * import { meshFor } from "chorale/mesh";
 *
 * const mesh = meshFor({ kind: "tensor-parallel", degree: 4, meshShape: [2, 2] }, { worldSize: 8 });
 * console.log(mesh.shape); // { dp: 2, tpr: 2, tpc: 2 }
 */
export function meshFor<const T extends MeshTopology>(
  topology: T,
  options: MeshOptions,
): DeviceMesh<TopologyAxes[T["kind"]]>;
export function meshFor(topology: MeshTopology, options: MeshOptions): DeviceMesh {
  switch (topology.kind) {
    case "data-parallel":
      return createMesh({ dp: "auto" }, options);
    case "pipeline-parallel":
      return createMesh({ dp: "auto", pp: topology.stages }, options);
    case "mixed":
      return createMesh({ dp: topology.dp, pp: topology.pp, tp: topology.tp }, options);
    case "tensor-parallel": {
      if (topology.meshShape === undefined) return createMesh({ dp: "auto", tp: topology.degree }, options);
      const [rows, columns] = topology.meshShape;
      if (rows * columns !== topology.degree) {
        const equation = `${rows} x ${columns} = ${rows * columns} != ${topology.degree}`;
        throw new InvalidArgumentError("meshShape", topology.meshShape, `rows x columns = degree: ${equation}`);
      }
      return createMesh({ dp: "auto", tpr: rows, tpc: columns }, options);
    }
  }
}
