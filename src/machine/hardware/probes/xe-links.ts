/**
 * Xe Links between Intel's GPUs, from the matrix of `xpu-smi topology -m` (XPU Manager, "topology"): one row and column a
 * tile, `GPU 0/1`. XL16 is a direct link of 16 lanes; XL* goes over the other tile of a card and is no link; MDF joins the
 * tiles of one card. The rate of a lane is not stated, so a link's rate is unknown.
 */

import { ask } from "../ask-tool.ts";
import { linesOf } from "../field-readers.ts";
import type { DeviceDraft, LinkDraft, ProbeContext, ProbeResult, ProbeWarning, RelationDraft } from "../probe.ts";

const RELATIONS: ReadonlySet<string> = new Set(["NODE", "SYS"]);
/** Most tiles of one host. */
const MAX_TILES = 64;

/** Asks for the matrix. */
export async function readXeLinks(
  context: ProbeContext,
  devices: readonly DeviceDraft[],
  warnings: ProbeWarning[],
): Promise<Pick<ProbeResult, "links" | "relations">> {
  const answer = await ask(
    context,
    {
      tool: "xpu-smi",
      args: ["topology", "-m"],
      accepts: (args) => args[0] === "topology" && args.some((arg) => arg === "-m" || arg === "--matrix"),
    },
    warnings,
  );
  return answer === undefined ? {} : parseXeLinks(answer.stdout, devices);
}

/** `GPU 0/1` is a tile of device 0. */
function deviceOf(tile: string | undefined): number | undefined {
  const match = /^GPU (\d{1,3})(?:\/\d{1,2})?$/.exec(tile?.trim() ?? "");
  return match === null ? undefined : Number(match[1]);
}

function parseXeLinks(text: string, devices: readonly DeviceDraft[]): Pick<ProbeResult, "links" | "relations"> {
  const rows = linesOf(text).filter((row) => row.includes("|"));
  const columns = (rows[0] ?? "").split("|").slice(0, MAX_TILES + 2);
  // The heading has no cell above the names of the rows.
  const offset = deviceOf(columns[0]) === undefined ? 0 : 1;
  const keys = new Map(devices.map((device) => [device.index, device.key]));
  const lanes = new Map<string, number>();
  const relations: RelationDraft[] = [];
  const told = new Set<string>();
  for (const row of rows.slice(1, MAX_TILES + 1)) {
    const cells = row.split("|").map((cell) => cell.trim());
    const from = deviceOf(cells[0]);
    for (const [i, column] of columns.entries()) {
      const to = deviceOf(column);
      const cell = cells[i + offset] ?? "";
      const [a, b] = [keys.get(from ?? -1), keys.get(to ?? -1)];
      if (from === undefined || to === undefined || from >= to || a === undefined || b === undefined) continue;
      const pair = `${a} ${b}`;
      const direct = /^XL(\d{1,3})$/.exec(cell);
      if (direct !== null) lanes.set(pair, (lanes.get(pair) ?? 0) + Number(direct[1]));
      else if (RELATIONS.has(cell) && !told.has(pair)) {
        told.add(pair);
        relations.push({ a, b, relation: cell });
      }
    }
  }
  const links = [...lanes].map(([pair, numLanes]): LinkDraft => {
    const [a = "", b = ""] = pair.split(" ");
    return { a, b, kind: "xe-link", details: { lanes: numLanes } };
  });
  return { links, relations };
}
