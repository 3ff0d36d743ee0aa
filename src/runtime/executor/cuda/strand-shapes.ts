/**
 * Strands that do the same with other numbers become one function of the generated source. A number that differs is
 * written as a formula of the rank and the strand where one fits all of them, exactly, and as a table otherwise. So the
 * instances of a program, and the ranks of a symmetric one, share their code.
 */
import type { RankSteps, Step } from "./strand-steps.ts";

interface Member {
  readonly rank: number;
  readonly strand: number;
  readonly steps: readonly Step[];
}
export interface Shape {
  readonly members: readonly Member[];
  /** The steps of the first member: their forms are everybody's. */
  readonly steps: readonly Step[];
}

/** The strands of all ranks by what they do, in the order of their first appearance. */
export function shapesOf(ranks: readonly RankSteps[]): readonly Shape[] {
  const found = new Map<string, Member[]>();
  ranks.forEach(({ strands }, rank) => {
    strands.forEach((steps, strand) => {
      const key = JSON.stringify(steps.map(({ numbers, comment, op, body, ...form }) => [form, numbers.length]));
      const member = { rank, strand, steps };
      const list = found.get(key);
      if (list === undefined) found.set(key, [member]);
      else list.push(member);
    });
  });
  return [...found.values()].map((members) => ({ members, steps: members[0]!.steps }));
}

/** A number of every member, as C++: a constant, a formula, or a place in a table that `tables` receives. */
export class NumberWriter {
  readonly #numRanks: number;
  /** Declarations of the tables. */
  readonly tables: string[] = [];

  constructor(numRanks: number) {
    this.#numRanks = numRanks;
  }

  write(members: readonly Member[], step: number, index: number): string {
    const value = (member: Member) => member.steps[step]!.numbers[index]!;
    const first = value(members[0]!);
    if (members.every((member) => value(member) === first)) return `${first}`;
    for (let turn = 0; turn < this.#numRanks; turn++) {
      const turned = (rank: number) => (rank + turn) % this.#numRanks;
      const name = turn === 0 ? "rank" : `turned(rank, ${turn})`;
      const fit = fitPlane(members.map((member) => [turned(member.rank), member.strand, value(member)]));
      if (fit !== undefined) return formula(fit, name);
    }
    return this.#table(members, value);
  }

  #table(members: readonly Member[], value: (member: Member) => number): string {
    const strands = members.map(({ strand }) => strand);
    const [low, high] = [Math.min(...strands), Math.max(...strands)];
    const rows = Array.from({ length: this.#numRanks }, () => new Array<number>(high - low + 1).fill(0));
    for (const member of members) rows[member.rank]![member.strand - low] = value(member);
    const name = `TABLE_${this.tables.length}`;
    const text = rows.map((row) => `{${row.join(", ")}}`).join(", ");
    this.tables.push(`CHORALE_TABLE int ${name}[${rows.length}][${high - low + 1}] = {${text}};`);
    return `${name}[rank][${sum(["strand", `${-low}`])}]`;
  }
}

interface Plane {
  readonly base: number;
  readonly perRank: number;
  readonly perStrand: number;
}

/** base + perRank * x + perStrand * y = v for all (x, y, v), in whole numbers; undefined where there is none. */
function fitPlane(points: readonly (readonly number[])[]): Plane | undefined {
  const [x0, y0, v0] = points[0] as [number, number, number];
  const fits = ({ base, perRank, perStrand }: Plane) =>
    points.every(([x, y, v]) => base + perRank * x! + perStrand * y! === v);
  const sameX = points.find(([x, y]) => x === x0 && y !== y0);
  const perStrand = sameX === undefined ? 0 : (sameX[2]! - v0) / (sameX[1]! - y0);
  const other = points.find(([x]) => x !== x0);
  const perRank = other === undefined ? 0 : (other[2]! - v0 - perStrand * (other[1]! - y0)) / (other[0]! - x0);
  if (!Number.isInteger(perStrand) || !Number.isInteger(perRank)) return undefined;
  const plane = { base: v0 - perRank * x0 - perStrand * y0, perRank, perStrand };
  return fits(plane) ? plane : undefined;
}

function formula({ base, perRank, perStrand }: Plane, rank: string): string {
  return sum([product(perRank, rank), product(perStrand, "strand"), `${base}`]);
}

const isNumber = (text: string) => /^-?\d+$/.test(text);

/** The sum of C++ expressions, numbers added up. */
export function sum(terms: readonly string[]): string {
  const constant = terms.filter(isNumber).reduce((total, text) => total + Number(text), 0);
  const others = terms.filter((text) => !isNumber(text));
  if (others.length === 0) return `${constant}`;
  const text = others.join(" + ");
  if (constant === 0) return text;
  return constant > 0 ? `${text} + ${constant}` : `${text} - ${-constant}`;
}

/** `factor` times a C++ expression that needs no parentheses, or is put in them. */
export function product(factor: number | string, expression: string): string {
  const a = `${factor}`;
  if (a === "0" || expression === "0") return "0";
  if (a === "1") return expression;
  if (isNumber(a) && isNumber(expression)) return `${Number(a) * Number(expression)}`;
  if (expression === "1") return a;
  return `${wrapped(a)} * ${wrapped(expression)}`;
}

function wrapped(text: string): string {
  return /^[\w.]+$|^\w+(\[[^\]]*\])+$|^\w+\([^()]*\)$/.test(text) ? text : `(${text})`;
}
