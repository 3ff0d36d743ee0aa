/** Named axes and their sizes: `dp 2 x pp 1 x tp 4`. The last axis is contiguous in rank order. */
import { InvalidArgumentError } from "../core/index.ts";
import { described } from "../core/internal.ts";

/** Sizes of the axes in order, outermost first; at most one is `"auto"`. */
export type AxisSizes = Readonly<Record<string, number | "auto">>;

export interface Axis<Name extends string = string> {
  readonly name: Name;
  readonly size: number;
}

/** Names that a group, a flag or a file can carry unquoted. A leading digit would also reorder a JavaScript object. */
const AXIS_NAME = /^[A-Za-z][A-Za-z0-9_-]*$/;

/** Writes sizes as an equation's left side: `dp 2 x tp auto`. */
export function formatSizes(sizes: AxisSizes): string {
  const terms = Object.entries(sizes).map(([name, size]) => `${name} ${String(size)}`);
  return terms.length === 0 ? "no axis" : terms.join(" x ");
}

/**
 * Works out the axes of a mesh: checks the sizes, fills `"auto"`, and compares the product with the number of ranks.
 * @param worldSize number of ranks; absent: the product of the sizes
 * @throws InvalidArgumentError with the whole equation
 */
export function resolveAxes(sizes: AxisSizes, worldSize: number | undefined): readonly Axis[] {
  const entries = Object.entries(sizes ?? {});
  if (entries.length === 0) throw new InvalidArgumentError("axes", sizes, "at least one axis, such as { dp: 1 }");
  for (const [name, size] of entries) {
    // What every object has would be found where axes are looked up by name.
    if (!AXIS_NAME.test(name) || name in Object.prototype) {
      throw new InvalidArgumentError(
        "axis name",
        name,
        "a letter, then letters, digits, _ or -, and not the name of a member that every object has",
      );
    }
    if (size !== "auto" && (!Number.isSafeInteger(size) || size < 1)) {
      throw new InvalidArgumentError(`size of axis ${name}`, size, `an integer of 1 or more, or "auto"`);
    }
  }
  if (worldSize !== undefined && (!Number.isSafeInteger(worldSize) || worldSize < 1)) {
    throw new InvalidArgumentError("worldSize", worldSize, "an integer of 1 or more");
  }
  const autos = entries.filter(([, size]) => size === "auto").map(([name]) => name);
  if (autos.length > 1) {
    throw new InvalidArgumentError(
      "axes",
      described(formatSizes(sizes)),
      `at most one axis that is "auto", not ${autos.join(" and ")}`,
    );
  }
  const known = entries.reduce((product, [, size]) => product * (size === "auto" ? 1 : size), 1);
  if (!Number.isSafeInteger(known))
    throw new InvalidArgumentError("axes", described(formatSizes(sizes)), "fewer than 2^53 ranks");
  const auto = autos[0];
  if (auto !== undefined) {
    if (worldSize === undefined) {
      throw new InvalidArgumentError(
        "axes",
        described(formatSizes(sizes)),
        `worldSize or devices, to work out ${auto}`,
      );
    }
    if (worldSize % known !== 0) {
      const fixed = formatSizes(Object.fromEntries(entries.filter(([, size]) => size !== "auto")));
      throw new InvalidArgumentError(
        "axes",
        described(formatSizes(sizes)),
        `sizes that divide ${worldSize} ranks: ${fixed} = ${known}, and ${worldSize} / ${known} = ${worldSize / known}`,
      );
    }
  } else if (worldSize !== undefined && known !== worldSize) {
    throw new InvalidArgumentError(
      "axes",
      described(formatSizes(sizes)),
      `sizes that multiply to the number of ranks: ${formatSizes(sizes)} = ${known} != ${worldSize} ranks`,
    );
  }
  const rest = worldSize === undefined ? 1 : worldSize / known;
  return Object.freeze(entries.map(([name, size]) => Object.freeze({ name, size: size === "auto" ? rest : size })));
}
