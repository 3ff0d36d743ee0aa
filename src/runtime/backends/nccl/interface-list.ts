/**
 * Which interfaces NCCL_SOCKET_IFNAME and NCCL_IB_HCA choose: lists of beginnings of names, as NCCL's user guide describes them
 * (`=` before the list: whole names; `^`: all but these).
 */

/** Bridges and virtual ends of containers and virtual machines: other hosts cannot reach them. */
export const LOCAL_NETWORK = /^(docker|br-|veth|virbr|cni|flannel|lxc|vnet)/;

/** The names that a list of NCCL's chooses. */
export function chosenBy(list: string, names: readonly string[]): readonly string[] {
  const [, excludes, isWhole, rest = ""] = /^(\^)?(=)?(.*)$/.exec(list.trim()) ?? [];
  const words = rest
    .split(",")
    // An adapter may have its port behind it.
    .map((word) => word.trim().replace(/:\d+$/, ""))
    .filter((word) => word !== "");
  const isNamed = (name: string) => words.some((word) => (isWhole ? name === word : name.startsWith(word)));
  return names.filter((name) => isNamed(name) !== (excludes !== undefined));
}
