/** GiB for people. */
export function gib(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(bytes < 10 * 2 ** 30 ? 2 : 1)} GiB`;
}
