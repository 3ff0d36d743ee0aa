/** Terminal drawing for the demo: headings, tables, bars. Plain text when colors are off. */

export interface Style {
  bold(text: string): string;
  dim(text: string): string;
  accent(text: string): string;
  good(text: string): string;
  bad(text: string): string;
}

/** Colors, or none. */
export function makeStyle(colors: boolean): Style {
  const paint = (open: number, close: number) => (text: string) =>
    colors ? `\u001b[${open}m${text}\u001b[${close}m` : text;
  return { bold: paint(1, 22), dim: paint(2, 22), accent: paint(36, 39), good: paint(32, 39), bad: paint(31, 39) };
}

/** Number of columns that a text takes: without color codes. */
export function width(text: string): number {
  // biome's rule against control characters is about accidents; an escape sequence begins with one.
  return [...text.replace(/\u001b\[[0-9;]*m/g, "")].length;
}

export function padEnd(text: string, columns: number): string {
  return text + " ".repeat(Math.max(0, columns - width(text)));
}

export function padStart(text: string, columns: number): string {
  return " ".repeat(Math.max(0, columns - width(text))) + text;
}

/** A numbered heading with a rule to the edge. */
export function heading(style: Style, number: number, title: string, columns: number): string {
  const text = ` ${number}  ${title} `;
  return `\n${style.accent("──")}${style.bold(text)}${style.accent("─".repeat(Math.max(2, columns - width(text) - 2)))}`;
}

export type Align = "left" | "right";

/** Lines of a table; the first row is the header. */
export function table(style: Style, rows: readonly (readonly string[])[], align: readonly Align[]): string[] {
  const columns = Math.max(...rows.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, i) => Math.max(...rows.map((row) => width(row[i] ?? ""))));
  return rows.map((row, index) => {
    const cells = widths.map((w, i) => (align[i] === "right" ? padStart(row[i] ?? "", w) : padEnd(row[i] ?? "", w)));
    const line = `   ${cells.join("  ")}`.trimEnd();
    return index === 0 ? style.dim(line) : line;
  });
}

const EIGHTHS = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"] as const;

/** A bar of `fraction` (0 to 1) of `columns`, to an eighth of a character; never empty for what is above 0. */
export function bar(fraction: number, columns: number): string {
  const eighths = Math.max(fraction > 0 ? 1 : 0, Math.round(Math.min(1, fraction) * columns * 8));
  return "█".repeat(eighths >> 3) + (EIGHTHS[eighths & 7] ?? "");
}

/** Breaks a text at spaces into lines of at most `columns`. */
export function wrap(text: string, columns: number): string[] {
  return text.split("\n").flatMap((paragraph) => {
    const lines: string[] = [];
    let line = "";
    for (const word of paragraph.split(" ")) {
      if (line !== "" && width(line) + 1 + width(word) > columns) {
        lines.push(line);
        line = word;
      } else line = line === "" ? word : `${line} ${word}`;
    }
    return [...lines, line];
  });
}
