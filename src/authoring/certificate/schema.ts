/**
 * The form of networks and certificates that come from anywhere. Nothing but the listed fields may stand in them: a field
 * that is not checked would be believed by its reader.
 */
import { z } from "zod";
import { FormatError } from "../../core/index.ts";
import { CERTIFICATE_SCHEMA_VERSION, CERTIFIED_COLLECTIVES } from "./certificate.ts";

/** Far above any machine, and few enough that reading a hostile file ends soon. */
const [MAX_NODES, MAX_EDGES, MAX_ROUTES] = [65_536, 1_048_576, 4_000_000];

const strict = <Shape extends z.ZodRawShape>(shape: Shape) =>
  z.strictObject(shape, {
    error: ({ code, keys }) =>
      code === "unrecognized_keys"
        ? `${keys.join(", ")} does not belong here`
        : `expected an object with ${Object.keys(shape).join(", ")}`,
  });
const FRACTION = "\\d{1,400}(?:/0{0,399}[1-9]\\d{0,399}|\\.\\d{1,60})?$";
const NOT_NEGATIVE = 'expected a fraction of 0 or more as text, such as "7/50"';
const fraction = z.string(NOT_NEGATIVE).regex(new RegExp(`^${FRACTION}`), NOT_NEGATIVE);
/** Some digit above the line is not 0. */
const ABOVE_0 = 'expected a fraction above 0 as text, such as "25" or "63/2"';
const positive = z.string(ABOVE_0).regex(new RegExp(`^(?=[0.]*[1-9])${FRACTION}`), ABOVE_0);
const ids = z.array(z.string()).max(MAX_NODES);
const routes = z.array(z.array(z.string()).min(2).max(MAX_NODES)).max(MAX_ROUTES);

export const networkSchema = strict({
  nodes: z
    .array(strict({ id: z.string().min(1), kind: z.enum(["rank", "relay"], 'expected "rank" or "relay"') }))
    .max(MAX_NODES),
  edges: z
    .array(
      strict({
        from: z.string(),
        to: z.string(),
        capacity: positive,
        latencyUs: z.number().min(0).lt(1e12).optional(),
      }),
    )
    .max(MAX_EDGES),
});

export const certificateSchema = strict({
  schemaVersion: z.literal(CERTIFICATE_SCHEMA_VERSION),
  collective: z.enum(CERTIFIED_COLLECTIVES),
  root: z.string().optional(),
  shares: z.array(fraction).max(MAX_NODES).optional(),
  network: networkSchema,
  secondsPerGB: positive,
  witness: z.discriminatedUnion("kind", [
    strict({ kind: z.literal("cut"), inside: ids }),
    strict({
      kind: z.literal("partition"),
      parts: z
        .array(strict({ out: ids, in: ids }))
        .min(2, "expected at least 2 parts")
        .max(MAX_NODES),
    }),
    strict({
      kind: z.literal("lengths"),
      lengths: z.array(strict({ from: z.string(), to: z.string(), length: positive })).max(MAX_EDGES),
    }),
  ]),
  schedule: z.discriminatedUnion("kind", [
    strict({
      kind: z.literal("trees"),
      trees: z
        .array(strict({ root: z.string(), weight: positive, down: routes.optional(), up: routes.optional() }))
        .max(MAX_ROUTES),
    }),
    strict({
      kind: z.literal("paths"),
      paths: z.array(strict({ weight: positive, route: z.array(z.string()).min(2).max(MAX_NODES) })).max(MAX_ROUTES),
    }),
  ]),
  seal: z.string(),
});

/** Reads a value by its schema. @throws FormatError naming the first place that is wrong */
export function readAs<T>(schema: z.ZodType<T>, value: unknown, what: string): T {
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  const { path, message } = error.issues[0] as z.core.$ZodIssue;
  const field = path.reduce<string>(
    (at, key) => (typeof key === "number" ? `${at}[${key}]` : at ? `${at}.${String(key)}` : String(key)),
    "",
  );
  throw new FormatError(what, message, field === "" ? {} : { field });
}
