/** Names of nodes from files of others, on one line. */

/** The first names, and how many there are; a name with a line's end in it shows the escape. */
export function listed(names: readonly string[], most: number): string {
  const shown = names.slice(0, most).map((name) => JSON.stringify(name).slice(1, -1));
  return names.length > most ? `${shown.join(" ")} … (${names.length})` : shown.join(" ");
}
