/**
 * Writes a plan as an MSCCL algorithm file. A strand becomes thread blocks: one for its local work, one for each peer it
 * sends to and one for each it receives from, chained by dependences in the strand's order. A put becomes `s`, and `r`
 * where the receiver waits for its signal. What another strand received or made, as signals and semaphores say, is waited for
 * by a step that does nothing. Only plans of plain copies, puts and sums over channels can be written so; what is written is
 * read again and verified, since blocks order less than strands and signals do.
 */
import { UnsupportedError } from "../../core/index.ts";
import type { ExecutionPlan, Op, Range } from "../plan/index.ts";
import { requireShape, verifyPlan } from "../verifier/index.ts";
import { readMscclXml } from "./read-msccl-xml.ts";
import { escapeXml } from "./xml-subset.ts";

interface Place {
  readonly block: Tb;
  readonly step: number;
}
interface XmlStep {
  readonly type: "s" | "r" | "cpy" | "re" | "nop";
  readonly src: Range;
  readonly dst: Range;
  readonly count: number;
  /** Of a gate, known once all strands are written. */
  dep: Place | undefined;
  awaited: boolean;
}
interface Tb {
  readonly id: number;
  readonly send: number;
  readonly recv: number;
  channel: number;
  readonly steps: XmlStep[];
}

const LETTER = { input: "i", output: "o", scratch: "s" } as const;
const NOWHERE: Range = { buffer: "input", index: 0, size: 0 };

function unsupported(what: string): never {
  throw new UnsupportedError(`${what} in an MSCCL file`, "it knows plain copies, puts that are signalled, and sums");
}

/** What a signal announces. */
interface Announcement {
  /** What was put to its rank since the last one. */
  readonly messages: readonly { readonly dst: Range; readonly wire: string }[];
  /** By wire, how many messages its strand had sent to its rank: they are there too, whoever received them. */
  readonly covered: ReadonlyMap<string, number>;
}

class RankWriter {
  readonly blocks: Tb[] = [];
  /** Where messages are received, by wire. */
  readonly received = new Map<string, Place[]>();
  /** What stands before each release, by semaphore. */
  readonly released = new Map<number, (Place | undefined)[]>();
  /** Steps that wait for what may be written later. */
  readonly gates: { readonly at: Place; readonly target: () => Place | undefined }[] = [];
  private readonly keys = new Map<string, Tb>();

  block(key: string, send: number, recv: number, channel: number): Tb {
    let tb = this.keys.get(key);
    if (tb === undefined) {
      tb = { id: this.blocks.length, send, recv, channel, steps: [] };
      this.keys.set(key, tb);
      this.blocks.push(tb);
    }
    return tb;
  }

  /** Adds a step that does nothing, after `previous` and what `target` will say. */
  gate(local: Tb, previous: Place | undefined, target: () => Place | undefined): Place {
    const nop = { type: "nop", src: NOWHERE, dst: NOWHERE, count: 0 } as const;
    if (previous !== undefined && previous.block !== local) append(local, [previous], nop);
    const at = append(local, [], nop);
    this.gates.push({ at, target });
    return at;
  }

  resolve(): void {
    for (const { at, target } of this.gates) {
      const dep = target();
      if (dep === undefined || dep.block === at.block) continue;
      (at.block.steps[at.step] as XmlStep).dep = dep;
      (dep.block.steps[dep.step] as XmlStep).awaited = true;
    }
  }
}

/** Appends a step to a block after `deps`; more than one dependence takes nops. @returns the step's place */
function append(tb: Tb, deps: readonly (Place | undefined)[], step: Omit<XmlStep, "dep" | "awaited">): Place {
  const others = deps.filter((d): d is Place => d !== undefined && d.block !== tb);
  const last = others.pop();
  for (const dep of others) push({ type: "nop", src: NOWHERE, dst: NOWHERE, count: 0, dep, awaited: false });
  push({ ...step, dep: last, awaited: false });
  return { block: tb, step: tb.steps.length - 1 };
  function push(one: XmlStep): void {
    const target = one.dep?.block.steps[one.dep.step];
    if (target !== undefined) target.awaited = true;
    tb.steps.push(one);
  }
}

/**
 * Writes an MSCCL algorithm.
 * @throws UnsupportedError naming the first operation that the format cannot express, or what its blocks do not order; PlanError for a plan that does not
 *   hold together
 */
export function writeMscclXml(plan: ExecutionPlan): string {
  requireShape(plan);
  const n = plan.ranks.length;
  const wireOf = (
    rank: number,
    kind: "memory" | "port",
    id: number,
    sending: boolean,
  ): { name: string; peer: number } => {
    const peers = plan.ranks[rank]?.channels[kind] ?? [];
    const peer = peers[id] ?? -1;
    const ordinal = peers.slice(0, id).filter((p) => p === peer).length;
    return { name: sending ? `${kind} ${rank} ${peer} ${ordinal}` : `${kind} ${peer} ${rank} ${ordinal}`, peer };
  };
  // Pass 1: what each signal announces, by wire.
  const announced = new Map<string, Announcement[]>();
  /** Which channel number a pair of strands uses: one block sends and one receives on each. */
  const numbers = new Map<string, number>();
  const perPair = new Map<string, number>();
  for (const rank of plan.ranks) {
    for (const strand of rank.strands) {
      const pending = new Map<number, Range[]>();
      const sent = new Map<number, ReadonlyMap<string, number>>();
      const notify = (name: string, peer: number) => {
        const list = announced.get(name) ?? [];
        announced.set(name, list);
        const wire = `${rank.rank} ${strand.id} ${name}`;
        const messages = (pending.get(peer) ?? []).map((dst) => ({ dst, wire }));
        if (messages.length > 0 && !numbers.has(wire)) {
          const pair = `${rank.rank} ${peer}`;
          numbers.set(wire, perPair.get(pair) ?? 0);
          perPair.set(pair, (perPair.get(pair) ?? 0) + 1);
        }
        const before = sent.get(peer) ?? new Map<string, number>();
        const covered =
          messages.length === 0 ? before : new Map(before).set(wire, (before.get(wire) ?? 0) + messages.length);
        sent.set(peer, covered);
        list.push({ messages, covered });
        pending.delete(peer);
      };
      for (const op of strand.ops) {
        if ((op.kind === "put" && op.format !== "plain") || (op.kind === "reduce" && op.packets))
          unsupported("packets");
        const puts = op.kind === "put" ? op.dst : op.kind === "reduce" ? op.remoteDst : [];
        for (const { rank: to, ...dst } of puts) pending.set(to, [...(pending.get(to) ?? []), dst]);
        if (op.kind === "signal" || (op.kind === "put" && op.notify !== "none")) {
          for (const id of op.channels) {
            const { name, peer } = wireOf(rank.rank, op.channelKind, id, true);
            notify(name, peer);
          }
        }
      }
      if (pending.size > 0) unsupported(`a put to rank ${[...pending.keys()].join(", ")} that no signal follows`);
    }
  }
  // Pass 2: steps.
  const ranks = plan.ranks.map((rank) => {
    const writer = new RankWriter();
    const heard = new Map<string, number>();
    const acquired = new Map<number, number>();
    for (const strand of rank.strands) {
      let previous: Place | undefined;
      /** By wire, how many messages this strand knows to be there. */
      const known = new Map<string, number>();
      const local = () => writer.block(`${strand.id} local`, -1, -1, 0);
      const put = (to: number, src: Range, dst: Range, wire: string) => {
        const tb = writer.block(`send ${wire}`, to, -1, numbers.get(wire) ?? 0);
        previous = append(tb, [previous], { type: "s", src, dst, count: src.size });
      };
      /** Puts since the last signal to a peer, with the wire that will announce them. */
      const wireFor = (to: number, at: number): string => {
        for (const op of strand.ops.slice(at)) {
          if (op.kind !== "signal" && !(op.kind === "put" && op.notify !== "none")) continue;
          for (const id of op.channels) {
            const { name, peer } = wireOf(rank.rank, op.channelKind, id, true);
            if (peer === to) return `${rank.rank} ${strand.id} ${name}`;
          }
        }
        return unsupported(`a put to rank ${to} that no signal follows`);
      };
      const step: { readonly [K in Op["kind"]]?: (op: Extract<Op, { kind: K }>, at: number) => void } = {
        nop: () => undefined,
        flush: () => undefined,
        signal: () => undefined,
        copy: (op) => {
          if (op.format !== "plain") unsupported("packets");
          previous = append(local(), [previous], { type: "cpy", src: op.src, dst: op.dst, count: op.src.size });
        },
        put: (op, at) => {
          if (op.format !== "plain") unsupported("packets");
          op.dst.forEach(({ rank: to, ...dst }, i) => {
            put(to, op.src[i] as Range, dst, wireFor(to, at));
          });
        },
        reduce: (op, at) => {
          if (op.packets || op.packetDst !== undefined) unsupported("packets");
          if (op.remoteSrc.length > 0) unsupported("a reduction that reads a peer's memory");
          if (op.op !== "sum" && op.op !== "avg") unsupported(`reduction ${op.op}`);
          const [first, ...rest] = op.src as readonly [Range, ...Range[]];
          if (rest.some((r) => r.buffer === op.dst.buffer && r.index === op.dst.index))
            unsupported("a reduction into its second operand");
          if (first.buffer !== op.dst.buffer || first.index !== op.dst.index) {
            previous = append(local(), [previous], { type: "cpy", src: first, dst: op.dst, count: first.size });
          }
          for (const src of rest)
            previous = append(local(), [previous], { type: "re", src, dst: op.dst, count: src.size });
          for (const { rank: to, ...dst } of op.remoteDst) put(to, op.dst, dst, wireFor(to, at));
        },
        acquire: (op) => {
          for (const id of op.semaphores) {
            const index = acquired.get(id) ?? 0;
            acquired.set(id, index + 1);
            previous = writer.gate(local(), previous, () => writer.released.get(id)?.[index]);
          }
        },
        release: (op) => {
          for (const id of op.semaphores) writer.released.set(id, [...(writer.released.get(id) ?? []), previous]);
        },
        wait: (op) => {
          for (const id of op.channels) {
            const { name, peer } = wireOf(rank.rank, op.channelKind, id, false);
            const index = heard.get(name) ?? 0;
            heard.set(name, index + 1);
            const { messages = [], covered = [] } = announced.get(name)?.[index] ?? {};
            for (const { dst, wire } of messages) {
              const tb = writer.block(`recv ${wire}`, -1, peer, numbers.get(wire) ?? 0);
              previous = append(tb, [previous], { type: "r", src: dst, dst, count: dst.size });
              writer.received.set(wire, [...(writer.received.get(wire) ?? []), previous]);
              known.set(wire, (writer.received.get(wire) as Place[]).length);
            }
            for (const [wire, count] of covered) {
              if ((known.get(wire) ?? 0) >= count) continue;
              known.set(wire, count);
              previous = writer.gate(local(), previous, () => writer.received.get(wire)?.[count - 1]);
            }
          }
        },
      };
      strand.ops.forEach((op, at) => {
        if ("tbg" in op && op.tbg !== undefined) unsupported("an operation shared by thread blocks");
        const write = step[op.kind] as ((op: Op, at: number) => void) | undefined;
        if (write === undefined) unsupported(`${op.kind} between strands`);
        else write(op, at);
      });
    }
    writer.resolve();
    return writer;
  });
  const c = plan.collective;
  const perLoop =
    c.operation === "all_reduce" || c.operation === "broadcast" || c.operation === "reduce"
      ? c.chunksPerPart
      : c.chunksPerPart * n;
  const channels = Math.max(1, ...ranks.flatMap((writer) => writer.blocks.map((tb) => tb.channel + 1)));
  const name =
    { all_reduce: "allreduce", all_gather: "allgather", reduce_scatter: "reduce_scatter", all_to_all: "alltoall" }[
      c.operation as string
    ] ?? c.operation;
  const out = [
    `<algo name="${escapeXml(plan.name ?? "chorale")}" proto="${plan.options.protocol}" nchannels="${channels}" nchunksperloop="${perLoop * plan.options.instances}" ngpus="${n}" coll="${escapeXml(name)}" inplace="${c.inPlace ? 1 : 0}" outofplace="${c.inPlace ? 0 : 1}" minBytes="${plan.options.minMessageSizeBytes}" maxBytes="${plan.options.maxMessageSizeBytes >= 2n ** 64n - 1n ? 0 : plan.options.maxMessageSizeBytes}">`,
  ];
  ranks.forEach((writer, r) => {
    const rank = plan.ranks[r];
    out.push(
      `  <gpu id="${r}" i_chunks="${rank?.input.chunks}" o_chunks="${rank?.output.chunks}" s_chunks="${rank?.scratch.chunks}">`,
    );
    for (const tb of writer.blocks) {
      out.push(`    <tb id="${tb.id}" send="${tb.send}" recv="${tb.recv}" chan="${tb.channel}">`);
      tb.steps.forEach((s, i) => {
        out.push(
          `      <step s="${i}" type="${s.type}" srcbuf="${LETTER[s.src.buffer]}" srcoff="${s.src.index}" dstbuf="${LETTER[s.dst.buffer]}" dstoff="${s.dst.index}" cnt="${s.count}" depid="${s.dep?.block.id ?? -1}" deps="${s.dep?.step ?? -1}" hasdep="${s.awaited ? 1 : 0}"/>`,
        );
      });
      out.push("    </tb>");
    }
    out.push("  </gpu>");
  });
  out.push("</algo>", "");
  const xml = out.join("\n");
  const [finding] = verifyPlan(readMscclXml(xml), { lint: false }).findings;
  if (finding !== undefined) unsupported(`the order of this plan's strands (${finding.message})`);
  return xml;
}
