/**
 * Vector clocks of programs with very many strands. A clock says, for each lane (a strand, or what works for one), how
 * many of its steps are known to be over; lanes that it says nothing of count 0. A clock is never changed, and clocks
 * share what they have in common: a strand that has heard of three others among a million holds three leaves, and joining
 * two clocks looks only where they differ.
 *
 * The form is a radix tree of sixteen branches whose levels of one branch are left out, after Okasaki and Gill, "Fast
 * Mergeable Integer Maps" (ML Workshop 1998).
 */

const BITS = 4;
const WIDTH = 1 << BITS;

/** The lanes from `prefix << shift + BITS` on, WIDTH slots of `1 << shift` lanes each; of a leaf (shift 0) the slots are counts. */
class Branch {
  readonly prefix: number;
  readonly shift: number;
  readonly slots: readonly Slot[];
  constructor(prefix: number, shift: number, slots: readonly Slot[]) {
    this.prefix = prefix;
    this.shift = shift;
    this.slots = slots;
  }
}
/** 0 for nothing. */
type Slot = Branch | number;

/** What is known of every lane, of which there are fewer than 2 ** 28; undefined where nothing is. */
export type VectorClock = Branch | undefined;

/** @returns how many steps of `lane` the clock knows to be over */
export function stepsKnown(clock: VectorClock, lane: number): number {
  let slot: Slot = clock ?? 0;
  while (typeof slot !== "number") {
    const { shift } = slot;
    if (lane >>> (shift + BITS) !== slot.prefix) return 0;
    slot = slot.slots[(lane >>> shift) & (WIDTH - 1)]!;
  }
  return slot;
}

/** The pointwise maximum of two clocks; one of them where it covers the other. */
export function joinClocks(a: VectorClock, b: VectorClock): VectorClock {
  if (a === b || b === undefined) return a;
  return a === undefined ? b : joined(a, b);
}

/** @returns `clock` that also knows `steps` of `lane`; the same clock where it does already */
export function withSteps(clock: VectorClock, lane: number, steps: number): VectorClock {
  if (stepsKnown(clock, lane) >= steps) return clock;
  return clock === undefined ? leaf(lane, steps) : raised(clock, lane, steps);
}

/**
 * What one strand learns of others. Where it knew no more than the strand that it heard last, and hears that one again, it knows what
 * that one knows by now: nothing is compared. In a ring of n strands each of 2 n steps compared n lanes.
 */
export class Listener {
  #from = -1;
  #steps = 0;
  /** What the listener knew then, where that was no more than what it was told. */
  #told: VectorClock;

  /**
   * @param clock what the listener knows
   * @param base what strand `from` knew after `steps` of its own: the more of them, the more that is
   * @returns what the listener knows now
   */
  hear(clock: VectorClock, base: VectorClock, from: number, steps: number): VectorClock {
    const isAgain = from === this.#from && steps > this.#steps && clock === this.#told && clock !== undefined;
    const known = isAgain ? base : joinClocks(clock, base);
    const now = withSteps(known, from, steps);
    this.#from = from;
    this.#steps = steps;
    this.#told = known === base ? now : undefined;
    return now;
  }
}

function branchOf(prefix: number, shift: number, at: number, slot: Slot): Branch {
  const slots = new Array<Slot>(WIDTH).fill(0);
  slots[at] = slot;
  return new Branch(prefix, shift, slots);
}

const leaf = (lane: number, steps: number) => branchOf(lane >>> BITS, 0, lane & (WIDTH - 1), steps);

/** The slot of `outer` that covers `inner`, or -1 where it does not lie within. */
function slotOf(outer: Branch, inner: Branch): number {
  const lane = inner.prefix << (inner.shift + BITS);
  return outer.shift > inner.shift && lane >>> (outer.shift + BITS) === outer.prefix
    ? (lane >>> outer.shift) & (WIDTH - 1)
    : -1;
}

function replaced({ prefix, shift, slots }: Branch, at: number, slot: Slot): Branch {
  const copy = slots.slice();
  copy[at] = slot;
  return new Branch(prefix, shift, copy);
}

/** Two branches of which neither lies within the other, beneath the least branch of both. */
function beside(a: Branch, b: Branch): Branch {
  const lane = a.prefix << (a.shift + BITS);
  const other = b.prefix << (b.shift + BITS);
  let shift = Math.max(a.shift, b.shift) + BITS;
  while (lane >>> (shift + BITS) !== other >>> (shift + BITS)) shift += BITS;
  const both = branchOf(lane >>> (shift + BITS), shift, (lane >>> shift) & (WIDTH - 1), a);
  return replaced(both, (other >>> shift) & (WIDTH - 1), b);
}

function raised(branch: Branch, lane: number, steps: number): Branch {
  const { prefix, shift, slots } = branch;
  if (lane >>> (shift + BITS) !== prefix) return beside(branch, leaf(lane, steps));
  const at = (lane >>> shift) & (WIDTH - 1);
  if (shift === 0) return replaced(branch, at, steps);
  const below = slots[at]!;
  return replaced(branch, at, typeof below === "number" ? leaf(lane, steps) : raised(below, lane, steps));
}

function joined(a: Branch, b: Branch): Branch {
  if (a.shift !== b.shift || a.prefix !== b.prefix) {
    const inA = slotOf(a, b);
    if (inA >= 0) return within(a, inA, b);
    const inB = slotOf(b, a);
    return inB >= 0 ? within(b, inB, a) : beside(a, b);
  }
  let slots: Slot[] | undefined;
  let bCovers = true;
  for (let i = 0; i < WIDTH; i++) {
    const x = a.slots[i]!;
    const y = b.slots[i]!;
    if (x === y) continue;
    const slot = joinSlots(x, y);
    if (slot !== y) bCovers = false;
    if (slot === x) continue;
    slots ??= a.slots.slice();
    slots[i] = slot;
  }
  if (slots === undefined) return a;
  return bCovers ? b : new Branch(a.prefix, a.shift, slots);
}

/** `outer` joined with what lies within one of its slots. */
function within(outer: Branch, at: number, inner: Branch): Branch {
  const below = outer.slots[at]!;
  const slot = joinSlots(below, inner);
  return slot === below ? outer : replaced(outer, at, slot);
}

function joinSlots(x: Slot, y: Slot): Slot {
  if (typeof x === "number") return typeof y === "number" ? Math.max(x, y) : y;
  return typeof y === "number" ? x : joined(x, y);
}
