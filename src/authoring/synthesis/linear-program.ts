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

/** Solves by the simplex method, so that solutions are vertices; undefined when infeasible or not solved in time. */
export async function solveLinearProgram(
  program: LinearProgram,
  limitSeconds: number,
): Promise<LinearSolution | undefined> {
  // Its types are of the CommonJS build; the module that is loaded has the loader as its default export.
  solver ??= import("highs").then(({ default: load }) => (load as unknown as () => Promise<Solver>)());
  const rows = program.rows.map(({ terms, relation, right }, i) => `r${i}: ${textOf(terms)} ${relation} ${right}`);
  const text = `Minimize\nobj: ${textOf(program.objective)}\nSubject To\n${rows.join("\n")}\nEnd\n`;
  const solution = (await solver).solve(text, {
    output_flag: false,
    solver: "simplex",
    time_limit: limitSeconds,
  }) as Solution;
  if (solution.Status !== "Optimal") return undefined;
  const columns = new Float64Array(program.numColumns);
  for (let i = 0; i < columns.length; i++) columns[i] = solution.Columns[`x${i}`]?.Primal ?? 0;
  return {
    objective: solution.ObjectiveValue,
    columns,
    prices: Float64Array.from(solution.Rows, ({ Dual }) => Dual),
  };
}
