/** How the members of a group lie on hosts: a row for each host, whose columns talk to those of the other hosts. */

export interface HostLayout {
  /** Group ranks by host: hosts in the order of their first member, members in theirs. */
  readonly hosts: readonly (readonly number[])[];
  /** This rank's host, and its place there. */
  readonly host: number;
  readonly column: number;
  /** All hosts but this one. */
  readonly otherHosts: readonly number[];
  /** Columns that every host has. */
  readonly numColumns: number;
  /** All hosts have as many members. */
  readonly isEven: boolean;
}

/** @param marks what each member's host is called, by group rank */
export function layoutOf(marks: readonly string[], me: number): HostLayout {
  const byMark = new Map<string, number[]>();
  for (const [member, mark] of marks.entries()) byMark.set(mark, [...(byMark.get(mark) ?? []), member]);
  const hosts = [...byMark.values()];
  const host = hosts.findIndex((row) => row.includes(me));
  const sizes = hosts.map(({ length }) => length);
  const numColumns = Math.min(...sizes);
  return {
    hosts,
    host,
    column: hosts[host]?.indexOf(me) ?? 0,
    otherHosts: [...hosts.keys()].filter((other) => other !== host),
    numColumns,
    isEven: Math.max(...sizes) === numColumns,
  };
}

/** The members of this rank's host. */
export const ownRow = ({ hosts, host }: HostLayout): readonly number[] => hosts[host] ?? [];

/** `2 hosts of 4 and 2`, for people. */
export function layoutText({ hosts }: HostLayout): string {
  const sizes = hosts.map(({ length }) => length);
  if (hosts.length === 1) return "one host";
  if (new Set(sizes).size === 1) return `${hosts.length} hosts of ${sizes[0]}`;
  return `${hosts.length} hosts of ${sizes.slice(0, -1).join(", ")} and ${sizes.at(-1)}`;
}
