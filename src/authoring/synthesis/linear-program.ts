/** Linear programs, solved by HiGHS (WebAssembly), loaded when the first one is. Results are floating point. */
/** Minimise the objective over columns of 0 or more. Coefficients by column number. */
export interface LinearProgram {
  readonly numColumns: number;
  readonly objective: ReadonlyMap<number, number>;
  readonly rows: readonly {
    readonly terms: ReadonlyMap<number, number>;
    readonly relation: "<=" | ">=" | "=";
    readonly right: number;
  }[];
}

export interface LinearSolution {
  readonly objective: number;
  readonly columns: Float64Array;
  /** The price of each row: how much the objective changes with its right side. */
  readonly prices: Float64Array;
}

let solver: Promise<Solver> | undefined;

interface Solver {
  solve(text: string, options: object): unknown;
}

interface Solution {
  readonly Status: string;
  readonly ObjectiveValue: number;
  readonly Columns: Readonly<Record<string, { readonly Primal: number }>>;
  readonly Rows: readonly { readonly Dual: number }[];
}

function textOf(terms: ReadonlyMap<number, number>): string {
  const parts = [...terms].map(([column, value]) => `${value < 0 ? "-" : "+"} ${Math.abs(value)} x${column}`);
  // The format limits the length of a line.
  return parts.map((part, i) => (i % 12 === 11 ? `${part}\n` : part)).join(" ");
}

async function solve(program: LinearProgram, limitSeconds: number, isInteger: boolean): Promise<Solution> {
  // Its types are of the CommonJS build; the module that is loaded has the loader as its default export.
  solver ??= import("highs").then(({ default: load }) => (load as unknown as () => Promise<Solver>)());
  const rows = program.rows.map(({ terms, relation, right }, i) => `r${i}: ${textOf(terms)} ${relation} ${right}`);
  const integers = isInteger
    ? `General\n${[...program.objective.keys()].map((column) => `x${column}`).join("\n")}\n`
    : "";
  const text = `Minimize\nobj: ${textOf(program.objective)}\nSubject To\n${rows.join("\n")}\n${integers}End\n`;
  const options = { output_flag: false, time_limit: limitSeconds };
  return (await solver).solve(
    text,
    isInteger ? { ...options, mip_rel_gap: 0.5, mip_max_nodes: 30 } : { ...options, solver: "simplex" },
  ) as Solution;
}

function columnsOf({ Columns }: Solution, numColumns: number): Float64Array {
  return Float64Array.from({ length: numColumns }, (_, i) => Columns[`x${i}`]?.Primal ?? 0);
}

/** Solves by the simplex method, so that solutions are vertices; undefined when infeasible or not solved in time. */
export async function solveLinearProgram(
  program: LinearProgram,
  limitSeconds: number,
): Promise<LinearSolution | undefined> {
  const solution = await solve(program, limitSeconds, false);
  if (solution.Status !== "Optimal") return undefined;
  return {
    objective: solution.ObjectiveValue,
    columns: columnsOf(solution, program.numColumns),
    prices: Float64Array.from(solution.Rows, ({ Dual }) => Dual),
  };
}

/** Columns of the objective as integers, near to the least; undefined when there are none or none was found in time. */
export async function solveIntegerProgram(
  program: LinearProgram,
  limitSeconds: number,
): Promise<Float64Array | undefined> {
  const solution = await solve(program, limitSeconds, true);
  return solution.Status === "Optimal" ? columnsOf(solution, program.numColumns) : undefined;
}
