/**
 * What copy engines can do of a plan: strands that do nothing but put their rank's input into peers' scratch, unit by unit, and
 * say so. Engines then move those units, of all strands together, and copy numbers into the counters that the peers wait for;
 * the other strands are the kernel's, as ever. The plan stays what was proved: engines do a strand's operations in its order.
 * Refuses whatever else is sent: plans whose senders wait, take turns or send from elsewhere.
 */
import { UnsupportedError } from "../../../core/index.ts";
import { DATA_NUMBERS, type DataStep, type RankSteps, type Step, writesScratch } from "./strand-steps.ts";

/** One chunk of the rank's input, and where it goes: in units, like those of all other sends. */
export interface EngineSend {
  readonly segment: number;
  readonly chunk: number;
  readonly peer: number;
  /** In the peer's scratch. */
  readonly toChunk: number;
}
/** A counter of a peer that is one higher after each unit. */
export interface EngineSignal {
  readonly peer: number;
  readonly counter: number;
}
export interface EngineSends {
  readonly unitBytes: number;
  /** By rank, in the order of strands. */
  readonly sends: readonly (readonly EngineSend[])[];
  readonly signals: readonly (readonly EngineSignal[])[];
}

/** A stretch that is copied: addresses of a device, and bytes. */
export interface Stretch {
  readonly to: number;
  readonly from: number;
  readonly bytes: number;
}
/** Stretches of the same size, each the same distance from the one before. */
export interface CopyRows extends Stretch {
  readonly toPitch: number;
  readonly fromPitch: number;
  readonly rows: number;
}

/** What one rank sends of a launch. */
export interface LaunchSends {
  readonly input: number;
  readonly partBytes: number;
  readonly chunkBytes: number;
  /** Where scratch begins in every rank's window, and the windows. */
  readonly scratch: number;
  readonly counters: number;
  readonly counterStride: number;
  readonly windows: readonly number[];
  /** Numbers for counters: those of a turn follow each other. */
  readonly flags: number;
}

interface Sender {
  readonly unitBytes: number;
  readonly sends: readonly EngineSend[];
  readonly signals: readonly EngineSignal[];
}

/**
 * Takes the strands from a plan that engines can do.
 * @returns what engines do, and the steps without those strands
 * @throws UnsupportedError where engines can do none, or not all that is sent
 */
export function takeEngineSends(
  ranks: readonly RankSteps[],
  name: string,
): { readonly engine: EngineSends; readonly ranks: readonly RankSteps[] } {
  const senders = ranks.map(({ strands }) => strands.map(senderOf));
  const all = senders.flat().filter((one) => one !== undefined);
  const [first] = all;
  const kept = ranks.map(({ lowered, strands }, rank) => ({
    lowered,
    strands: strands.filter((steps, strand) => steps.length > 0 && senders[rank]?.[strand] === undefined),
  }));
  const units = new Set(all.map(({ unitBytes }) => unitBytes));
  const signalled = ranks.flatMap(({ strands }) => strands.flatMap((steps) => steps.flatMap(countersOf)));
  if (
    first === undefined ||
    units.size > 1 ||
    new Set(signalled).size < signalled.length ||
    kept.some(({ strands }) => strands.some((steps) => steps.some(writesScratch)))
  )
    throw new UnsupportedError(
      `${name} by copy engines`,
      "they need strands that put their rank's input into scratch unit by unit: use a staged- or streaming- algorithm",
    );
  const of = <T>(pick: (sender: Sender) => readonly T[]) =>
    senders.map((strands) => strands.flatMap((one) => (one === undefined ? [] : pick(one))));
  const engine = { unitBytes: first.unitBytes, sends: of(({ sends }) => sends), signals: of((one) => one.signals) };
  return { engine, ranks: kept };
}

/** Counters that a step raises, by rank and number. */
function countersOf(step: Step): string[] {
  if (step.kind !== "signal") return [];
  return Array.from({ length: step.count }, (_, i) => `${step.numbers[2 * i]} ${step.numbers[2 * i + 1]}`);
}

/** What a strand sends, if that is all it does: a loop of puts, and then of signals. */
function senderOf(steps: readonly Step[]): Sender | undefined {
  const [loop, ...body] = steps;
  if (loop?.kind !== "loop" || loop.numbers[0] !== 1 || body.pop()?.kind !== "end-loop") return undefined;
  const sends: EngineSend[] = [];
  const signals: EngineSignal[] = [];
  for (const step of body) {
    if (step.kind === "meet") continue;
    if (step.kind === "signal") {
      for (let i = 0; i < step.count; i++)
        signals.push({ peer: step.numbers[2 * i] as number, counter: step.numbers[2 * i + 1] as number });
    } else if (step.kind === "data" && signals.length === 0 && isPut(step)) sends.push(...putsOf(step));
    else return undefined;
  }
  return sends.length === 0 || signals.length === 0
    ? undefined
    : { unitBytes: loop.numbers[1] as number, sends, signals };
}

function isPut({ code, raw, windowed, parts, ins, outs, numbers }: DataStep): boolean {
  const { chunks, from, to } = DATA_NUMBERS;
  const isWhole = numbers[chunks] === 1 && numbers[from] === 0 && numbers[to] === 1;
  const [source, ...others] = ins;
  return (
    code === "copy" &&
    !raw &&
    windowed &&
    parts === 1 &&
    isWhole &&
    others.length === 0 &&
    source?.own === true &&
    source.buffer === "input" &&
    outs.every(({ own, buffer }) => !own && buffer === "scratch")
  );
}

function putsOf({ outs, numbers }: DataStep): EngineSend[] {
  const { places, perPlace } = DATA_NUMBERS;
  const at = (place: number, word: number) => numbers[places + perPlace * place + word] as number;
  return outs.map((_, i) => ({ segment: at(0, 1), chunk: at(0, 2), peer: at(i + 1, 0), toChunk: at(i + 1, 2) }));
}

/** How many units a chunk has. */
export function numTurns({ unitBytes }: Pick<EngineSends, "unitBytes">, chunkBytes: number): number {
  return Math.ceil(chunkBytes / unitBytes);
}

/** The copies of one turn of a rank's sends, then those that raise the peers' counters. */
export function turnOf(
  { unitBytes, sends, signals }: EngineSends,
  rank: number,
  turn: number,
  launch: LaunchSends,
): { readonly data: readonly CopyRows[]; readonly flags: readonly CopyRows[] } {
  const { input, partBytes, chunkBytes, windows, scratch } = launch;
  const unit = turn * unitBytes;
  const own = { sends: sends[rank] ?? [], signals: signals[rank] ?? [] };
  const data: CopyRows[] = [];
  const flags: CopyRows[] = [];
  // Windows are apart from each other: rows are of one peer.
  windows.forEach((window, to) => {
    const stretches = own.sends.flatMap(({ segment, chunk, peer, toChunk }) => {
      const begin = chunk * chunkBytes;
      // Chunks at the end of a part may be short, or empty.
      const bytes = Math.min(unit + unitBytes, chunkBytes, partBytes - begin) - unit;
      if (peer !== to || bytes <= 0) return [];
      const from = input + segment * partBytes + begin + unit;
      return [{ to: window + scratch + toChunk * chunkBytes + unit, from, bytes }];
    });
    data.push(...inRows(stretches));
    const numbers = own.signals.flatMap(({ peer, counter }, i) => {
      if (peer !== to) return [];
      const from = launch.flags + 4 * (turn * own.signals.length + i);
      return [{ to: window + launch.counters + launch.counterStride * counter, from, bytes: 4 }];
    });
    flags.push(...inRows(numbers));
  });
  return { data, flags };
}

/** The most that the driver takes between rows. */
const MAX_PITCH = 2 ** 31 - 1;

/** Joins stretches that are alike and evenly apart, as far as they follow each other. */
function inRows(stretches: readonly Stretch[]): CopyRows[] {
  const made: CopyRows[] = [];
  for (const one of stretches) {
    const last = made.at(-1);
    if (last !== undefined && last.bytes === one.bytes) {
      const { rows, fromPitch, toPitch } = last;
      const [down, up] = [one.from - last.from, one.to - last.to];
      const [nextFrom, nextTo] = rows === 1 ? [down, up] : [fromPitch, toPitch];
      const fits = down === rows * nextFrom && up === rows * nextTo && nextFrom >= one.bytes && nextTo >= one.bytes;
      if (fits && nextFrom <= MAX_PITCH && nextTo <= MAX_PITCH) {
        made[made.length - 1] = { ...last, rows: rows + 1, fromPitch: nextFrom, toPitch: nextTo };
        continue;
      }
    }
    made.push({ ...one, rows: 1, fromPitch: one.bytes, toPitch: one.bytes });
  }
  // What lies without gaps is one stretch.
  return made.map((all) =>
    all.rows > 1 && all.fromPitch === all.bytes && all.toPitch === all.bytes
      ? { ...all, bytes: all.bytes * all.rows, rows: 1 }
      : all,
  );
}
