/**
 * Whether the interfaces and adapters that NCCL is told to use between hosts are there: NCCL_SOCKET_IFNAME and NCCL_IB_HCA. NCCL's own
 * words for a name that matches nothing ("no socket interface found") do not say which.
 */
import { chosenBy, LOCAL_NETWORK } from "../../runtime/backends/nccl/internal.ts";
import type { Check } from "./examined-machine.ts";
import type { Finding } from "./finding.ts";

/** What NCCL leaves out unless it is named. */
const NOT_BY_DEFAULT = /^(lo|docker)/;
/** Names shown of those that are there. */
const MAX_SHOWN = 12;

const shown = (names: readonly string[]) =>
  names.slice(0, MAX_SHOWN).join(", ") + (names.length > MAX_SHOWN ? ` and ${names.length - MAX_SHOWN} more` : "");

/** @param settingOf gives a variable's value and where it stands */
export function namedInterfaces(
  settingOf: (name: string) => { readonly value: string; readonly where: string } | undefined,
): Check {
  return async ({ machine: { files }, gpus }) => {
    if (gpus.length === 0) return [];
    const findings: Finding[] = [];
    const evidence = (name: string, { value, where }: { readonly value: string; readonly where: string }) =>
      `${where}${name}=${value.slice(0, 80).replace(/[^\x20-\x7e]/g, "?")}`;
    const sockets = settingOf("NCCL_SOCKET_IFNAME");
    const all = (await files.list("/sys/class/net")).filter((name) => /^[\w.:@-]{1,32}$/.test(name));
    if (sockets !== undefined && sockets.value.trim() !== "" && all.length > 0) {
      const chosen = chosenBy(sockets.value, all);
      const reaching = chosen.filter((name) => !LOCAL_NETWORK.test(name));
      const useful = all.filter((name) => !NOT_BY_DEFAULT.test(name) && !LOCAL_NETWORK.test(name));
      const states = await Promise.all(reaching.map((name) => files.readText(`/sys/class/net/${name}/operstate`, 32)));
      const areDown = reaching.length > 0 && states.every((state) => state?.trim() === "down");
      const [severity, problem] =
        chosen.length === 0
          ? (["error", 'names no interface of this machine: NCCL ends with "no socket interface found"'] as const)
          : reaching.length === 0
            ? ([
                "warning",
                `chooses ${shown(chosen)}, which other hosts cannot reach: NCCL hangs or fails between hosts`,
              ] as const)
            : areDown
              ? (["error", `chooses ${shown(reaching)}, which ${reaching.length === 1 ? "is" : "are"} down`] as const)
              : [];
      if (problem !== undefined) {
        findings.push({
          code: "NCCL_INTERFACE",
          severity,
          message: `NCCL_SOCKET_IFNAME ${problem}.`,
          evidence: [evidence("NCCL_SOCKET_IFNAME", sockets), `/sys/class/net: ${shown(all)}`],
          mend: `Name the beginning of one that reaches the other hosts (${shown(useful) || "there is none here"}), after = its whole name, or unset it.`,
        });
      }
    }
    const adapters = settingOf("NCCL_IB_HCA");
    const there = (await files.list("/sys/class/infiniband")).filter((name) => /^[\w.-]{1,64}$/.test(name));
    // A host without adapters may share its site's file.
    const isAsked = adapters !== undefined && adapters.value.trim() !== "" && there.length > 0;
    if (isAsked && chosenBy(adapters.value, there).length === 0) {
      findings.push({
        code: "NCCL_INTERFACE",
        severity: "warning",
        message: "NCCL_IB_HCA names no adapter of this machine: between hosts NCCL goes by sockets, without a word.",
        evidence: [evidence("NCCL_IB_HCA", adapters), `/sys/class/infiniband: ${shown(there)}`],
        mend: "Name the beginnings of adapters that are there, or unset it.",
      });
    }
    return findings;
  };
}
