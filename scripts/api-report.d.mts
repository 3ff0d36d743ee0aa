/** The report of each entry point, by name. */
export function apiReports(): Map<string, string>;
/** Where the committed report differs from what dist/ declares: one line a file. */
export function apiDifferences(now?: Map<string, string>): string[];
