/** From a result of the synthesiser to a certificate that stands by itself. */
import { InvalidArgumentError } from "../../core/index.ts";
import { described } from "../../core/internal.ts";
import { CERTIFICATE_SCHEMA_VERSION, type Certificate, sealCertificate } from "../certificate/index.ts";
import { checkNetwork } from "./network.ts";
import type { Synthesis } from "./synthesize.ts";

/**
 * The certificate of an optimal result: plain data, to be written as JSON and checked by `checkCertificate`.
 * @throws InvalidArgumentError when the result is not optimal: there is nothing to certify, only a gap
 */
export function certify(result: Synthesis): Certificate {
  if (!result.isOptimal) {
    const gap = result.time.over(result.bound).toNumber();
    throw new InvalidArgumentError(
      "result",
      described(`${gap.toFixed(4)} times its bound`),
      "a schedule that reaches its bound",
    );
  }
  const { collective, network, options, witness, schedule } = result;
  const net = checkNetwork(network);
  const rooted = ["broadcast", "reduce", "scatter", "gather"].includes(collective);
  return sealCertificate({
    schemaVersion: CERTIFICATE_SCHEMA_VERSION,
    collective,
    ...(rooted ? { root: net.ids[net.ranks[options.root ?? 0] as number] as string } : {}),
    ...(options.shares === undefined ? {} : { shares: options.shares }),
    network: {
      nodes: network.nodes.map(({ id, kind }) => ({ id, kind })),
      edges: network.edges.map(({ from, to, capacity }) => ({ from, to, capacity })),
    },
    secondsPerGB: result.time.toString(),
    witness,
    schedule,
  });
}
