/** What chorale says on stderr of its own accord when a machine is slow: it belongs to no program's output. */

const NOTICE = /^chorale: (after \d+ s still .*|rank \d+ is in .*|.* is silent for .*|.* speaks again)\n?/gm;

/** A process's output without notices of calls, and of hosts, that take long. */
export const withoutNotices = (text: string): string => text.replaceAll(NOTICE, "");
