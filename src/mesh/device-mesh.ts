/**
 * DeviceMesh: ranks arranged along named axes, as frozen plain data. `rank = ((dp * PP + pp) * TP + tp)` for a mesh
 * made of { dp, pp, tp }: the last axis is contiguous. Nothing here communicates; `world.communicator(mesh, "tp")`
 * makes a group talk.
 */
import { rank as checkRank, InvalidArgumentError, invariant, show } from "../core/index.ts";
import { described } from "../core/internal.ts";
import type { Device, Family } from "../machine/topology/index.ts";
import { type Axis, type AxisSizes, formatSizes, resolveAxes } from "./axes.ts";
import { type DeviceBackend, deviceBackend } from "./device-backend.ts";
import { formatGrid } from "./grid.ts";
import { coordinates, groupsAlong, makeCustomGroup, type ProcessGroup, strides, WORLD_GROUP } from "./groups.ts";
import type { MeshDocument } from "./schema.ts";
import { MESH_SCHEMA_VERSION } from "./schema-version.ts";
import { type MeshStats, meshStats } from "./stats.ts";

export interface MeshOptions {
  /** Number of ranks; absent: of `devices`, or the product of the sizes. */
  readonly worldSize?: number;
  /** One device per rank, by rank. Ranks may share a device. */
  readonly devices?: readonly Device[];
  /** The rank that looks at the mesh: what `group("tp")` and `device()` mean without an argument. */
  readonly rank?: number;
  /** Lets the devices be of different families, which collectives rarely serve well. */
  readonly allowMixedFamilies?: boolean;
}

/**
 * Makes a mesh from sizes, outermost axis first; one size may be `"auto"`.
 * @throws InvalidArgumentError with the whole equation when the sizes do not multiply to the number of ranks
 * @example
 * import { createMesh } from "chorale/mesh";
 *
 * const mesh = createMesh({ dp: 2, pp: "auto", tp: 2 }, { worldSize: 8 });
 * console.log(mesh.shape); // { dp: 2, pp: 2, tp: 2 }
 * console.log(mesh.rankOf({ dp: 1, pp: 0, tp: 1 })); // 5
 * console.log(mesh.group("tp", 5).ranks); // [4, 5]
 */
export function createMesh<const A extends AxisSizes>(
  axes: A,
  options: MeshOptions = {},
): DeviceMesh<keyof A & string> {
  const { devices, worldSize, rank } = options;
  if (devices !== undefined && worldSize !== undefined && devices.length !== worldSize) {
    throw new InvalidArgumentError(
      "devices",
      described(`${devices.length} devices`),
      `one for each of ${worldSize} ranks`,
    );
  }
  const families = [...new Set(devices?.map(({ family }) => family))];
  if (families.length > 1 && options.allowMixedFamilies !== true) {
    const accepted = "devices of one family, or allowMixedFamilies: true";
    throw new InvalidArgumentError("devices", described(`of ${families.join(" and ")}`), accepted);
  }
  const resolved = resolveAxes(axes, worldSize ?? devices?.length) as readonly Axis<keyof A & string>[];
  return new DeviceMesh(resolved, devices, [], rank);
}

/** Ranks along named axes. Immutable: what changes it gives a new mesh. */
export class DeviceMesh<Name extends string = string> {
  readonly axes: readonly Axis<Name>[];
  /** Size of each axis. */
  readonly shape: Readonly<Record<Name, number>>;
  /** Number of ranks. */
  readonly size: number;
  /** One device per rank, when the mesh knows them. */
  readonly devices: readonly Device[] | undefined;
  /** The rank that looks at the mesh, when one does. */
  readonly rank: number | undefined;
  readonly customGroups: readonly ProcessGroup[];
  readonly #groups = new Map<string, readonly ProcessGroup[]>();

  /** For `createMesh` and its like, which check their arguments. */
  constructor(
    axes: readonly Axis<Name>[],
    devices: readonly Device[] | undefined,
    customGroups: readonly ProcessGroup[],
    rank: number | undefined,
  ) {
    this.axes = axes;
    this.shape = Object.freeze(Object.fromEntries(axes.map(({ name, size }) => [name, size]))) as Record<Name, number>;
    this.size = axes.reduce((product, axis) => product * axis.size, 1);
    this.devices = devices === undefined ? undefined : Object.freeze([...devices]);
    this.customGroups = Object.freeze([...customGroups]);
    this.rank = rank === undefined ? undefined : checkRank(rank, this.size);
    Object.freeze(this);
  }

  /** `dp2xpp2xtp2`: the sizes as part of a name. */
  get label(): string {
    return this.axes.map(({ name, size }) => `${name}${size}`).join("x");
  }

  /** Size of an axis, or of a product of axes. */
  sizeOf(axes: Name | readonly Name[]): number {
    return this.#along(axes).reduce((product, name) => product * this.shape[name], 1);
  }

  /** Coordinates of a rank. @throws InvalidArgumentError when it is not one of the mesh's ranks */
  coordsOf(rank: number): Readonly<Record<Name, number>> {
    const here = coordinates(this.axes, checkRank(rank, this.size));
    return Object.freeze(Object.fromEntries(this.axes.map(({ name }, i) => [name, here[i]!]))) as Record<Name, number>;
  }

  /** The rank at coordinates, one for every axis. @throws InvalidArgumentError when one is absent or out of range */
  rankOf(coords: Readonly<Record<Name, number>>): number {
    const unknown = Object.keys(coords).find((name) => !(name in this.shape));
    if (unknown !== undefined) throw new InvalidArgumentError("axis", unknown, `one of ${this.#names()}`);
    const steps = strides(this.axes);
    return this.axes.reduce((rank, { name, size }, i) => {
      const at = coords[name];
      if (!Number.isInteger(at) || at < 0 || at >= size) {
        throw new InvalidArgumentError(`coordinate on axis ${name}`, at, `an integer from 0 to ${size - 1}`);
      }
      return rank + at * steps[i]!;
    }, 0);
  }

  /**
   * The group that `rank` is in, along an axis or a product of axes; its ranks ascend.
   * @throws InvalidArgumentError for an axis that the mesh does not have, or when no rank is given and the mesh has none
   */
  group(axes: Name | readonly Name[], rank: number | undefined = this.rank): ProcessGroup {
    const checked = this.#rank(rank);
    const group = this.groups(axes).find(({ ranks }) => ranks.includes(checked));
    invariant(group !== undefined, `rank ${checked} is in a group of ${show(axes)}`);
    return group;
  }

  /** Every group along an axis or a product of axes: a partition of the world. */
  groups(axes: Name | readonly Name[]): readonly ProcessGroup[] {
    const along = this.#along(axes);
    const key = along.join("*");
    let groups = this.#groups.get(key);
    if (groups === undefined) {
      groups = groupsAlong(this.axes, along);
      this.#groups.set(key, groups);
    }
    return groups;
  }

  /** Every group: the world, along each axis and product of axes, and the custom ones. Equal sets of ranks stay apart. */
  allGroups(): readonly ProcessGroup[] {
    const subsets: Name[][] = [[]];
    for (const { name } of this.axes) subsets.push(...subsets.map((set) => [...set, name]));
    const built = subsets.filter((set) => set.length > 0).flatMap((set) => this.groups(set));
    return [...built.sort((a, b) => b.axes.length - a.axes.length), ...this.customGroups];
  }

  groupNames(): readonly string[] {
    return this.allGroups().map(({ name }) => name);
  }

  /** A group by name: `world`, `tp[dp=0]`, or a custom one. @throws InvalidArgumentError naming the groups */
  getGroup(name: string): ProcessGroup {
    const group = this.allGroups().find((candidate) => candidate.name === name);
    if (group !== undefined) return group;
    const names = this.groupNames();
    const list = `${names.slice(0, 20).join(", ")}${names.length > 20 ? `, ... (${names.length})` : ""}`;
    throw new InvalidArgumentError("group", name, `one of ${list}`);
  }

  /**
   * The same mesh with a named group of any ranks, in the order given.
   * @throws InvalidArgumentError for a name that is taken, and for ranks that are not integers, repeated, or out of range
   */
  addGroup(name: string, ranks: readonly number[]): DeviceMesh<Name> {
    const taken = (candidate: string) => this.allGroups().some((group) => group.name === candidate);
    const group = makeCustomGroup(name, ranks, this.size, taken);
    return new DeviceMesh(this.axes, this.devices, [...this.customGroups, group], this.rank);
  }

  /** Whether a rank is in a group. */
  inGroup(group: string | ProcessGroup, rank: number | undefined = this.rank): boolean {
    return this.#resolve(group).ranks.includes(this.#rank(rank));
  }

  /** A rank's place in a group; `undefined` when it is not in it. */
  groupRank(group: string | ProcessGroup, rank: number | undefined = this.rank): number | undefined {
    const place = this.#resolve(group).ranks.indexOf(this.#rank(rank));
    return place < 0 ? undefined : place;
  }

  /** The device of a rank; `undefined` when the mesh knows no devices. */
  device(rank: number | undefined = this.rank): Device | undefined {
    return this.devices?.[this.#rank(rank)];
  }

  /** Devices of a group, by group rank; empty when the mesh knows no devices. */
  devicesInGroup(group: string | ProcessGroup): readonly Device[] {
    const { devices } = this;
    return devices === undefined ? [] : this.#resolve(group).ranks.map((rank) => devices[rank]!);
  }

  /** Devices of a family, each once. */
  devicesByFamily(family: Family): readonly Device[] {
    return [...new Set(this.devices)].filter((device) => device.family === family);
  }

  /** Devices that a runtime drives (`cuda`, `rocm`, `metal`, `cpu`, ...), each once. */
  devicesByBackend(backend: DeviceBackend): readonly Device[] {
    return [...new Set(this.devices)].filter((device) => deviceBackend(device.family) === backend);
  }

  /** Memory, compute units and families of the devices, and the number of groups. A shared device counts once. */
  stats(): MeshStats {
    return meshStats(this);
  }

  /** The same mesh, looked at by another rank. */
  withRank(rank: number): DeviceMesh<Name> {
    return new DeviceMesh(this.axes, this.devices, this.customGroups, rank);
  }

  /**
   * The same ranks and devices along other axes. Groups along axes are built anew; custom groups, which are of ranks,
   * stay, and must not be named as one of the new groups.
   * @throws InvalidArgumentError with the whole equation when the sizes do not multiply to the same number
   */
  reshape<const A extends AxisSizes>(axes: A): DeviceMesh<keyof A & string> {
    const resolved = resolveAxes(axes, this.size) as readonly Axis<keyof A & string>[];
    const bare = new DeviceMesh(resolved, this.devices, [], this.rank);
    return this.customGroups.reduce((mesh, { name, ranks }) => mesh.addGroup(name, ranks), bare);
  }

  /** The mesh as a document of schema `meshSchema`. The rank that looks at it is left out. */
  toJSON(): MeshDocument {
    return {
      schemaVersion: MESH_SCHEMA_VERSION,
      axes: this.axes.map(({ name, size }) => ({ name, size })),
      ...(this.devices === undefined ? {} : { devices: [...this.devices] }),
      customGroups: this.customGroups.map(({ name, ranks }) => ({ name, ranks: [...ranks] })),
    };
  }

  /** The ranks as a grid: rows and columns are the last two axes. */
  toString(): string {
    return formatGrid(this);
  }

  #along(axes: Name | readonly Name[]): readonly Name[] {
    const asked = typeof axes === "string" ? [axes] : axes;
    for (const name of asked) {
      if (!(name in this.shape)) throw new InvalidArgumentError("axis", name, `one of ${this.#names()}`);
    }
    if (asked.length === 0) throw new InvalidArgumentError("axes", axes, `at least one of ${this.#names()}`);
    return this.axes.map(({ name }) => name).filter((name) => asked.includes(name));
  }

  #resolve(group: string | ProcessGroup): ProcessGroup {
    return typeof group === "string" ? this.getGroup(group) : group;
  }

  #rank(rank: number | undefined): number {
    if (rank === undefined) {
      throw new InvalidArgumentError(
        "rank",
        rank,
        `a rank of the mesh (${formatSizes(this.shape)}), or mesh.withRank()`,
      );
    }
    return checkRank(rank, this.size);
  }

  #names(): string {
    return `the mesh's axes ${this.axes.map(({ name }) => name).join(", ")}`;
  }
}

export { WORLD_GROUP };
