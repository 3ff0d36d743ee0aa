/** Writes the function of a shape: one block of C++ for each step, with the plan's operation as its comment. */
import type { PlanReduceOp } from "../../../authoring/plan/index.ts";
import { type KernelOp, operatorName } from "./elements.ts";
import { type NumberWriter, product, type Shape, sum } from "./strand-shapes.ts";
import {
  type BarrierStep,
  DATA_NUMBERS,
  type DataStep,
  isUser,
  type Place,
  reachesBuffers,
  type SemaphoreStep,
  type SignalStep,
  type Step,
  WAIT_NUMBERS,
  type WaitStep,
  writesScratch,
} from "./strand-steps.ts";

interface StrandWriterParts {
  readonly shape: Shape;
  /** The function is `strand_<index>`. */
  readonly index: number;
  readonly numbers: NumberWriter;
  /** Chunks are never short. */
  readonly exact: boolean;
  /** Packets are lines. */
  readonly lines: boolean;
  /** What is packed first is loaded before the strand begins, and handed to it. */
  readonly loadsFirst: boolean;
  /** Semaphores are taken under the rank's lock: some operation takes several together. */
  readonly lockSemaphores: boolean;
  /** The ranks tell each other where their buffers are. */
  readonly hasBuffers: boolean;
  /** Every strand waits for all ranks to have begun, not only those that reach others' buffers. */
  readonly meetsAll: boolean;
  /** Blocks of a strand. */
  readonly team: number;
  /** A strand that writes scratch waits until the peers are done with the launch that had the same slot. */
  readonly runsAhead: boolean;
  readonly op: (op: PlanReduceOp) => KernelOp;
}

const MEET_RANKS = "if (!meetRanks(L, launch, buffers)) return;";

/** Threads that wait for counters at once. */
const WARP = 32;

/** Every place that is read goes to one of its own: see merge-lines.ts. */
const isPaired = ({ code, ins }: DataStep) => (code === "pack" || code === "unpack") && ins.length > 1;

export class StrandWriter {
  /** What loads that, as C++, once the strand is written; absent where it begins otherwise. */
  first: string | undefined;
  readonly #parts: StrandWriterParts;
  readonly #lines: string[] = [];
  #indent = "  ";
  /** Whether threads have met since the last step that does more. */
  #met = true;
  /** How the last data operations were shared out among threads, since they met. */
  #sharing: "units" | "lines" | "none" | "unknown" = "none";

  constructor(parts: StrandWriterParts) {
    this.#parts = parts;
  }

  write(): string {
    const { shape, index, hasBuffers, meetsAll, runsAhead } = this.#parts;
    const meetsAt = meetsAll ? 0 : firstReaching(shape.steps);
    if (meetsAll && shape.steps.length === 0) this.#line(MEET_RANKS);
    if (runsAhead && shape.steps.some(writesScratch)) this.#line("awaitSlot(L, rank, launch);");
    shape.steps.forEach((step, at) => {
      if (at === meetsAt) this.#line(MEET_RANKS);
      this.#step(step, at);
    });
    const { members } = shape;
    const strands = [...new Set(members.map(({ strand }) => strand))];
    const ranks = [...new Set(members.map(({ rank }) => rank))];
    const body = this.#lines;
    const who = `// Strands ${spans(strands)} of ranks ${spans(ranks)}.`;
    const uses = (name: string) => body.some((line) => new RegExp(`\\b${name}\\b`).test(line));
    const unused = ["rank", "strand", "launch", "slot"].filter((name) => !uses(name)).map((name) => `(void)${name};`);
    if (hasBuffers && !uses("buffers")) unused.push("(void)buffers;");
    return [
      who,
      `__device__ __forceinline__ void strand_${index}(const Launch& L, const int rank, const int strand, const u32 launch,`,
      `                                         const i64 slot${hasBuffers ? ", Buffers& buffers" : ""}${this.first === undefined ? "" : ", const Unit first"}) {`,
      ...(unused.length === 0 ? [] : [`  ${unused.join(" ")}`]),
      ...body,
      "}",
    ].join("\n");
  }

  #line(text: string): void {
    this.#lines.push(`${this.#indent}${text}`);
  }

  #block(write: () => void): void {
    this.#line("{");
    this.#indented(write);
    this.#line("}");
  }

  #indented(write: () => void): void {
    const before = this.#indent;
    this.#indent = `${before}  `;
    write();
    this.#indent = before;
  }

  #meet(): void {
    if (!this.#met) this.#line(this.#parts.team === 1 ? "__syncthreads();" : "meetTeam();");
    this.#met = true;
    this.#sharing = "none";
  }

  #did(): void {
    this.#met = false;
  }

  /** Which thread of the strand this is, in the source. */
  get #thread(): string {
    return this.#parts.team === 1 ? "threadIdx.x" : "position()";
  }

  #number(step: number, index: number): string {
    return this.#parts.numbers.write(this.#parts.shape.members, step, index);
  }

  #step(step: Step, at: number): void {
    if (step.comment !== undefined) this.#line(`// ${step.comment}`);
    switch (step.kind) {
      case "meet":
        this.#meet();
        return;
      case "data":
        this.#data(step, at);
        return;
      case "signal":
        this.#signal(step, at);
        return;
      case "wait":
        this.#wait(step, at);
        return;
      case "acquire":
      case "release":
        this.#semaphores(step, at);
        return;
      case "barrier":
        this.#barrier(step, at);
        return;
      case "loop": {
        const [chunks, unit] = [this.#number(at, 0), this.#number(at, 1)];
        this.#line(`for (i64 unit = 0; unit < ${product(chunks, "L.chunk")}; unit += ${unit}) {`);
        this.#indent += "  ";
        this.#line(`[[maybe_unused]] const i64 unitEnd = unit + ${unit};`);
        this.#met = false;
        this.#sharing = "unknown";
        return;
      }
      case "end-loop":
        this.#indent = this.#indent.slice(2);
        this.#line("}");
        this.#met = false;
        this.#sharing = "unknown";
        return;
    }
  }

  #site(step: Step): string {
    return `Site{${step.op}, ${step.body === undefined ? 0 : step.body + 1}}`;
  }

  #signal(step: SignalStep, at: number): void {
    if (!step.relaxed) this.#meet();
    const counters = Array.from({ length: step.count }, (_, i) => {
      return `counterOf(L, ${this.#number(at, 2 * i)}, ${this.#number(at, 2 * i + 1)})`;
    });
    // A release waits until all that was stored has arrived: once is enough.
    if (counters.length === 1)
      this.#line(`if (${this.#thread} == 0) ${step.relaxed ? "raiseRelaxed" : "raise"}(${counters[0]});`);
    else {
      this.#line(`if (${this.#thread} == 0) {`);
      this.#indented(() => {
        if (!step.relaxed) this.#line("fenceSystem();");
        for (const counter of counters) this.#line(`raiseRelaxed(${counter});`);
      });
      this.#line("}");
    }
    if (!step.relaxed) this.#did();
  }

  #wait(step: WaitStep, at: number): void {
    const number = (i: number, which: keyof typeof WAIT_NUMBERS) =>
      this.#number(at, WAIT_NUMBERS.words * i + WAIT_NUMBERS[which]);
    const counter = (i: number) => number(i, "counter");
    const counters = Array.from({ length: step.count }, (_, i) => i);
    const site = this.#site(step);
    if (step.counting === "locked") {
      const ready = counters.map(
        (i) =>
          `(int)(loadAcquire(counterOf(L, rank, ${counter(i)})) - loadWord(L.state + STATE_TAKEN + ${wrap(counter(i))})) >= ${number(i, "times")}`,
      );
      const take = counters.map(
        (i) => `*(volatile u32*)(L.state + STATE_TAKEN + ${wrap(counter(i))}) += ${number(i, "times")};`,
      );
      this.#takeTogether(ready, take, site);
    } else {
      // Threads of a warp wait together: one after the other, each would take the time of a load.
      for (let first = 0; first < step.count; first += WARP) {
        const some = counters.slice(first, first + WARP);
        const who = `if (${this.#thread} ${some.length === 1 ? "== 0" : `< ${some.length}`})`;
        if (step.counting === "launches") {
          const target = ofThread(
            some.map((i) =>
              sum([product(number(i, "perLaunch"), "(launch - 1)"), number(i, "before"), number(i, "times")]),
            ),
          );
          const address = `counterOf(L, rank, ${ofThread(some.map(counter))})`;
          this.#line(`${who} await(L, ${address}, (u32)(${target}), ${site});`);
          continue;
        }
        this.#line(`${who} {`);
        this.#indented(() => {
          this.#line(`const int counter = ${ofThread(some.map(counter))};`);
          this.#line("u32* const taken = L.state + STATE_TAKEN + counter;");
          this.#line(`const u32 target = *taken + ${wrap(ofThread(some.map((i) => number(i, "times"))))};`);
          this.#line(`await(L, counterOf(L, rank, counter), target, ${site});`);
          this.#line("*taken = target;");
        });
        this.#line("}");
      }
    }
    this.#did();
    this.#meet();
  }

  /** Thread 0 waits until all conditions hold at once, and then takes what it waited for. */
  #takeTogether(ready: readonly string[], take: readonly string[], site: string): void {
    this.#line(`if (${this.#thread} == 0) {`);
    this.#indented(() => {
      this.#line("Patience patience;");
      this.#line("for (bool over = false; !over; over = over || patience.isOver(L, " + site + ", 0, 1)) {");
      this.#indented(() => {
        this.#line(`lock(L, ${site});`);
        this.#line(`if (${ready.join(" && ")}) {`);
        this.#indented(() => {
          for (const text of take) this.#line(text);
          this.#line("over = true;");
        });
        this.#line("}");
        this.#line("unlock(L);");
        this.#line("if (over) break;");
      });
      this.#line("}");
    });
    this.#line("}");
  }

  #semaphores(step: SemaphoreStep, at: number): void {
    this.#meet();
    const ids = Array.from({ length: step.count }, (_, i) => i);
    const address = (i: number) => `L.state + STATE_SEMAPHORES + ${wrap(this.#number(at, 2 * i))}`;
    const times = (i: number) => this.#number(at, 2 * i + 1);
    const site = this.#site(step);
    if (step.kind === "release") {
      for (const i of ids) this.#line(`if (${this.#thread} == ${i % 32}) addAtDevice(${address(i)}, 1);`);
      this.#did();
      return;
    }
    const ready = ids.map((i) => `(int)loadAcquire(${address(i)}) >= ${times(i)}`);
    const take = ids.map((i) => `addAtDevice(${address(i)}, (u32)-${times(i)});`);
    if (this.#parts.lockSemaphores) this.#takeTogether(ready, take, site);
    else {
      this.#line(`if (${this.#thread} == 0) {`);
      this.#indented(() => {
        this.#line("Patience patience;");
        this.#line(`for (u32* const at = ${address(0)};;) {`);
        this.#indented(() => {
          this.#line("const u32 seen = loadAcquire(at);");
          this.#line("if (seen != 0 && swapAtDevice(at, seen, seen - 1) == seen) break;");
          this.#line(`if (patience.isOver(L, ${site}, seen, 1)) break;`);
        });
        this.#line("}");
      });
      this.#line("}");
    }
    this.#did();
    this.#meet();
  }

  #barrier(step: BarrierStep, at: number): void {
    this.#meet();
    this.#line(
      `if (${this.#thread} == 0) meetStrands(L, ${this.#number(at, 0)}, ${this.#number(at, 1)}, ${this.#site(step)});`,
    );
    this.#did();
    this.#meet();
  }

  #data(step: DataStep, at: number): void {
    const { lines, exact } = this.#parts;
    const hasPackets = [...step.ins, ...step.outs].some(({ buffer }) => buffer === "packets");
    if (lines) {
      const sharing = hasPackets ? "lines" : "units";
      if (this.#sharing !== "none" && this.#sharing !== sharing) {
        this.#met = false;
        this.#meet();
      }
      this.#sharing = sharing;
    }
    const number = (index: number) => this.#number(at, index);
    const { places: first, perPlace } = DATA_NUMBERS;
    const from = number(DATA_NUMBERS.from);
    const to = number(DATA_NUMBERS.to);
    const places = [...step.ins, ...step.outs].map((place, i) => ({
      place,
      rank: number(first + perPlace * i),
      segment: number(first + perPlace * i + 1),
      chunk: number(first + perPlace * i + 2),
    }));
    this.#block(() => {
      const wholeChunks = step.parts === 1;
      // Beginning of the strand's share, in bytes from the first of these chunks.
      let share = "0";
      let length: string;
      if (wholeChunks) length = product(sum([to, negative(from)]), "L.chunk");
      else {
        this.#line(`const i64 whole = ${product(number(DATA_NUMBERS.chunks), "L.chunk")};`);
        this.#line(`const i64 begin = ${product(from, "L.chunk")}, end = ${product(to, "L.chunk")};`);
        this.#line(`const i64 origin = cut(whole, ${number(DATA_NUMBERS.part)}, ${step.parts});`);
        this.#line(`const i64 low = most(begin, origin);`);
        this.#line(`const i64 high = least(end, cut(whole, ${sum([number(DATA_NUMBERS.part), "1"])}, ${step.parts}));`);
        length = "high - low";
        share = from === "0" ? "low" : "low - begin";
      }
      // Chunks at the end of a part may be short, or empty.
      const bytesOf = (moved: typeof places): string => {
        const ends = exact
          ? []
          : [
              ...new Set(
                moved
                  .filter(({ place }) => isUser(place))
                  .map(({ chunk }) => `L.part - ${wrap(sum([product(chunk, "L.chunk"), share]))}`),
              ),
            ].map((text) => text.replace(/ - 0$/, ""));
        return ends.reduce((all, end) => `least(${all}, ${end})`, length);
      };
      if (isPaired(step)) {
        const pairs = step.ins.map((_, i) => bytesOf([places[i]!, places[step.ins.length + i]!]));
        this.#line(`const i64 bytes[] = {${pairs.join(", ")}};`);
      } else this.#line(`i64 bytes = ${bytesOf(places)};`);
      let skip = share;
      if (step.windowed) {
        const lead = wholeChunks ? product(from, "L.chunk") : "low - origin";
        this.#line(`const i64 lead = ${lead};`);
        this.#line("const i64 first = most(0, unit - lead);");
        this.#line("bytes = least(bytes, unitEnd - lead) - first;");
        skip = sum([share, "first"]);
      }
      const address = ({ place, rank, segment, chunk }: (typeof places)[number]): string => {
        const offset = sum([product(segment, "L.part"), product(chunk, "L.chunk"), skip]);
        const plus = (base: string, more: string) => (more === "0" ? base : `${base} + ${more}`);
        switch (place.buffer) {
          case "packets": {
            const base = `L.window[${rank}] + L.packets + slot * L.packetsSlot`;
            if (lines) return plus(base, product(sum([chunk, from === "0" ? "0" : from]), "L.packetChunk"));
            return plus(base, product(2, offset));
          }
          case "scratch":
            return plus(`L.window[${rank}] + L.scratch + slot * L.scratchSlot`, offset);
          default:
            return plus(place.own ? `L.${place.buffer}` : `buffers.${place.buffer}[${rank}]`, offset);
        }
      };
      const ins = places.slice(0, step.ins.length).map(address);
      const outs = places.slice(step.ins.length).map(address);
      this.#line(`const char* const in[] = {${ins.join(", ")}};`);
      this.#line(`char* const out[] = {${outs.join(", ")}};`);
      const [source] = step.ins;
      const isFirst = at === 0 && step.code === "pack" && ins.length === 1 && step.parts === 1 && !step.windowed;
      if (this.#parts.loadsFirst && isFirst && source?.own === true && source.buffer === "input")
        this.first = `loadFirst(${ins[0]}, ${bytesOf(places)})`;
      this.#line(this.#call(step, at));
    });
    this.#did();
  }

  #call(step: DataStep, at: number): string {
    const [numIn, numOut] = [step.ins.length, step.outs.length];
    const isPacket = ({ buffer }: Place) => buffer === "packets";
    const op = step.reduce === undefined ? "Op_none" : operatorName(this.#parts.op(step.reduce));
    const site = this.#site(step);
    switch (step.code) {
      case "copy":
        return `copy<${numIn}, ${numOut}>(in, out, bytes);`;
      case "move":
        return `move<${op}, ${numIn}, ${numOut}>(in, out, bytes, ${scalar(op)});`;
      case "pack":
        if (isPaired(step)) return `packEach<${numIn}>(in, out, bytes, launch);`;
        return `pack<${numOut}>(${at === 0 && this.first !== undefined ? "first, " : ""}in[0], out, bytes, launch);`;
      case "unpack":
        if (isPaired(step)) return `unpackEach<${numIn}>(L, in, out, bytes, launch, ${site});`;
        return `reducePackets<Op_none, 0, 1, ${numOut}>(L, in, out, bytes, (Wide)0, launch, ${site});`;
      case "reducePackets": {
        const [added, sent] = [step.ins.filter(isPacket).length, step.outs.filter(isPacket).length];
        const counts = [numIn - added, added, numOut - sent, ...(sent === 0 ? [] : [sent])];
        return `reducePackets<${[op, ...counts].join(", ")}>(L, in, out, bytes, ${scalar(op)}, launch, ${site});`;
      }
      case "forward":
        return step.raw
          ? `forwardRaw<${numOut}>(in[0], out, bytes);`
          : `forward<${numOut}>(L, in[0], out, bytes, launch, ${site});`;
    }
  }
}

/** Only preMulSum looks at the launch's scalar. */
const scalar = (op: string) => (op === operatorName("preMulSum") ? "scalarOf(L)" : "(Wide)0");

/** The first step that reaches a buffer of another rank, or the loop that it is in: peers must have begun the launch. */
function firstReaching(steps: readonly Step[]): number {
  const first = steps.findIndex(reachesBuffers);
  const loop = steps.slice(0, first + 1).findLastIndex(({ kind }) => kind === "loop" || kind === "end-loop");
  return steps[loop]?.kind === "loop" ? loop : first;
}

/** What is a thread's own of these: of the first thread the first. */
function ofThread(texts: readonly string[]): string {
  const [first = "", ...others] = texts;
  if (others.every((text) => text === first)) return first;
  const last = texts.length - 1;
  return texts.map((text, i) => (i === last ? text : `threadIdx.x == ${i} ? ${text} : `)).join("");
}

const negative = (text: string) => (/^\d+$/.test(text) ? `${-Number(text)}` : `-(${text})`);
const wrap = (text: string) => (/^[\w.]+$/.test(text) ? text : `(${text})`);

/** Numbers as spans: 0-3, 5. */
function spans(numbers: readonly number[]): string {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let end = i;
    while (sorted[end + 1] === sorted[end]! + 1) end++;
    parts.push(end === i ? `${sorted[i]}` : `${sorted[i]}-${sorted[end]}`);
    i = end + 1;
  }
  return parts.join(", ");
}
