/** What serves a group's calls on mpi: what the world's documents say, or before them what was measured in the group. */
import type { CollectiveName } from "../../../collectives/index.ts";
import {
  CHOICES_SCHEMA_VERSION,
  type ChoiceDocument,
  type ChoiceRow,
  Choices,
  type ChoiceTable,
  choiceNews,
  type KernelNames,
} from "../../executor/internal.ts";

/** The group, as this rank sees it. */
interface MeasuredGroup {
  readonly group: string;
  readonly numRanks: number;
  /** This rank's number in it. */
  readonly me: number;
  readonly topology: string;
  readonly kernels: KernelNames;
}

export class MeasuredChoices extends Choices {
  /** Whether measurements in the group decide. */
  readonly measures: boolean;
  readonly #tables: ChoiceTable[];
  readonly #numRanks: number;

  constructor(measures: boolean, documents: readonly ChoiceDocument[], { me, ...place }: MeasuredGroup) {
    const tables: ChoiceTable[] = [];
    const measured = {
      schemaVersion: CHOICES_SCHEMA_VERSION,
      source: "measured",
      date: "in this world",
      tables,
    } as const;
    super({ backend: "mpi", ...place }, measures ? [measured, ...documents] : documents, choiceNews(me));
    this.measures = measures;
    this.#tables = tables;
    this.#numRanks = place.numRanks;
  }

  isMeasured(collective: CollectiveName): boolean {
    return this.#tables.some((table) => table.collective === collective);
  }

  add(collective: CollectiveName, rows: readonly ChoiceRow[]): void {
    this.#tables.push({ backend: "mpi", collective, ranks: [this.#numRanks, this.#numRanks], rows });
  }
}
