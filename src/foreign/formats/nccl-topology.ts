/**
 * Reads the XML in which NCCL and RCCL describe a machine (`NCCL_TOPO_DUMP_FILE`; src/graph/xml.cc of either): hosts' CPUs,
 * the PCI tree below them, GPUs with their xGMI or NVLink links, NICs. Elements and attributes only: text, entities,
 * document types and processing instructions are refused.
 */
import { FormatError } from "../../core/index.ts";

interface NcclElement {
  readonly name: string;
  readonly attributes: ReadonlyMap<string, string>;
  readonly children: readonly NcclElement[];
}

/** NCCL itself takes at most 256 nodes a host; dumps of several hosts have some thousands. */
const MAX_NCCL_TOPOLOGY_BYTES = 2 ** 24;
const MAX_ELEMENTS = 65_536;
const MAX_DEPTH = 64;

/** A PCI function: a bridge, or where a GPU, a NIC or an NVSwitch sits. */
export interface NcclPci {
  readonly busId: string;
  /** GT/s of one lane and the number of lanes; undefined where the dump does not know. */
  readonly gigatransfers: number | undefined;
  readonly lanes: number | undefined;
  readonly gpu: NcclGpu | undefined;
  readonly nets: readonly NcclNet[];
  readonly children: readonly NcclPci[];
}

export interface NcclGpu {
  /** Its number on the host. */
  readonly dev: number;
  readonly rank: number | undefined;
  /** `gfx90a` of AMD; the compute capability, such as `90`, of NVIDIA. */
  readonly gcn: string | undefined;
  readonly sm: number | undefined;
  readonly links: readonly NcclLink[];
}

/** Links to another PCI function; `count` of them. */
export interface NcclLink {
  readonly kind: "xgmi" | "nvlink";
  readonly target: string;
  readonly count: number;
}

export interface NcclNet {
  readonly name: string;
  readonly megabitsPerSecond: number | undefined;
}

export interface NcclTopology {
  /** By CPU (NUMA node), what hangs on it. */
  readonly cpus: readonly { readonly numa: number; readonly vendor: string; readonly pci: readonly NcclPci[] }[];
}

const TOKEN =
  /<!--[\s\S]*?-->|<\?xml[^>]*\?>|<\/([A-Za-z][\w.-]*)\s*>|<([A-Za-z][\w.-]*)((?:\s+[\w:.-]+\s*=\s*"[^"<]*")*)\s*(\/?)>|\s+/y;
const ATTRIBUTE = /([\w:.-]+)\s*=\s*"([^"<]*)"/g;

function parseElements(text: string, where: string): NcclElement {
  const fail = (at: number, what: string): never => {
    throw new FormatError(where, `${what} in line ${text.slice(0, at).split("\n").length}`, { field: "xml" });
  };
  type Open = { name: string; attributes: Map<string, string>; children: NcclElement[] };
  const stack: Open[] = [];
  let root: Open | undefined;
  let count = 0;
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const at = TOKEN.lastIndex;
    const match = TOKEN.exec(text);
    if (match === null) return fail(at, "has something that is no element, attribute or comment");
    const [, closing, opening, attributes = "", empty] = match;
    if (closing !== undefined) {
      if (stack.pop()?.name !== closing) fail(at, `closes <${closing}>, which is not the open element,`);
    } else if (opening !== undefined) {
      if (++count > MAX_ELEMENTS || stack.length >= MAX_DEPTH)
        fail(at, `has more than ${MAX_ELEMENTS} elements, or ${MAX_DEPTH} within each other,`);
      const own = new Map<string, string>();
      for (const [, key, value] of attributes.matchAll(ATTRIBUTE)) {
        if (own.has(key as string)) fail(at, `has ${key} twice`);
        own.set(key as string, value as string);
      }
      const element: Open = { name: opening, attributes: own, children: [] };
      const parent = stack.at(-1);
      if (parent !== undefined) parent.children.push(element);
      else if (root === undefined) root = element;
      else fail(at, "has a second root element");
      if (empty !== "/") stack.push(element);
    }
  }
  if (stack.length > 0 || root === undefined) return fail(text.length, "ends before its elements are closed");
  return root;
}

/**
 * Parses a dump.
 * @throws FormatError naming the line or the field: no `<system>`, no GPU, numbers that are none, GPUs that occur twice
 */
export function parseNcclTopology(text: string, where = "topology.xml"): NcclTopology {
  if (text.length > MAX_NCCL_TOPOLOGY_BYTES)
    throw new FormatError(where, `has ${text.length} bytes; at most ${MAX_NCCL_TOPOLOGY_BYTES}`);
  const system = parseElements(text.replace(/^\uFEFF/, ""), where);
  if (system.name !== "system")
    throw new FormatError(where, `has <${system.name}>; expected <system>`, { field: "xml" });
  const read = new Reader(where);
  const cpus = system.children.filter(({ name }) => name === "cpu").map((cpu) => read.cpu(cpu));
  if (read.numGpus === 0) throw new FormatError(where, "has no GPU", { field: "gpu" });
  return { cpus };
}

/** Reads elements, and sees that nothing occurs twice. */
class Reader {
  readonly #where: string;
  readonly #seen = new Set<string>();
  numGpus = 0;

  constructor(where: string) {
    this.#where = where;
  }

  cpu({ attributes, children }: NcclElement): NcclTopology["cpus"][number] {
    const numa = this.#integer(attributes, "cpu", "numaid", -1, 4095) ?? 0;
    this.#once(`cpu numaid ${numa}`);
    const pci = children.filter(({ name }) => name === "pci").map((child) => this.#pci(child));
    return { numa: Math.max(numa, 0), vendor: attributes.get("vendor") ?? "", pci };
  }

  #pci({ attributes, children }: NcclElement): NcclPci {
    const busId = (attributes.get("busid") ?? "").toLowerCase();
    if (!/^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]$/.test(busId))
      throw new FormatError(this.#where, `has ${JSON.stringify(busId.slice(0, 40))}; expected a PCI address`, {
        field: "pci.busid",
      });
    // Dumps list some bridges and NICs twice, under each of their upstream ports.
    if (children.some(({ name }) => name === "gpu")) this.#once(`pci busid ${busId}`);
    const speed = /^\s*(\d{1,3}(?:\.\d)?)\s*GT\/s/.exec(attributes.get("link_speed") ?? "");
    const lanes = this.#integer(attributes, "pci", "link_width", 0, 64);
    const gpus = children.filter(({ name }) => name === "gpu");
    if (gpus.length > 1)
      throw new FormatError(this.#where, `has ${gpus.length} GPUs at ${busId}`, { field: "pci.gpu" });
    return {
      busId,
      gigatransfers: speed === null || Number(speed[1]) === 0 ? undefined : Number(speed[1]),
      lanes: lanes === 0 ? undefined : lanes,
      gpu: gpus[0] === undefined ? undefined : this.#gpu(gpus[0]),
      nets: children
        .filter(({ name }) => name === "nic")
        .flatMap((nic) => nic.children.filter(({ name }) => name === "net"))
        .map((net) => ({
          name: net.attributes.get("name") ?? "net",
          megabitsPerSecond: this.#integer(net.attributes, "net", "speed", 0, 1e9) || undefined,
        })),
      children: children.filter(({ name }) => name === "pci").map((child) => this.#pci(child)),
    };
  }

  #gpu({ attributes, children }: NcclElement): NcclGpu {
    this.numGpus++;
    const dev = this.#integer(attributes, "gpu", "dev", 0, 65_535);
    if (dev === undefined) throw new FormatError(this.#where, "has a GPU without a number", { field: "gpu.dev" });
    this.#once(`gpu dev ${dev}`);
    return {
      dev,
      rank: this.#integer(attributes, "gpu", "rank", -1, 2 ** 20),
      gcn: attributes.get("gcn"),
      sm: this.#integer(attributes, "gpu", "sm", 0, 10_000),
      links: children.flatMap(({ name, attributes: link }): NcclLink[] => {
        if (name !== "xgmi" && name !== "nvlink") return [];
        const target = (link.get("target") ?? "").toLowerCase();
        const count = this.#integer(link, name, "count", 0, 1024) ?? 1;
        return count === 0 ? [] : [{ kind: name, target, count }];
      }),
    };
  }

  #once(what: string): void {
    if (this.#seen.has(what))
      throw new FormatError(this.#where, `has ${what} twice`, { field: what.split(" ")[0] as string });
    this.#seen.add(what);
  }

  #integer(
    attributes: ReadonlyMap<string, string>,
    element: string,
    name: string,
    least: number,
    most: number,
  ): number | undefined {
    const text = attributes.get(name);
    if (text === undefined) return undefined;
    const value = Number(text);
    if (text.trim() === "" || !Number.isInteger(value) || value < least || value > most)
      throw new FormatError(
        this.#where,
        `has ${JSON.stringify(text.slice(0, 40))}; expected an integer from ${least} to ${most}`,
        {
          field: `${element}.${name}`,
        },
      );
    return value;
  }
}
