/** What the doctor says. */
export type Severity = "error" | "warning" | "info";

export interface Finding {
  readonly code: string;
  readonly severity: Severity;
  /** What is wrong. */
  readonly message: string;
  /** Where that was seen: lines of files, answers of libraries, variables. */
  readonly evidence?: readonly string[];
  /** What to do about it. */
  readonly mend: string;
}
