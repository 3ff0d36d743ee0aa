/** Which CUDA device each rank of an mpi world uses, as its options or the environment name them. */
import { InvalidArgumentError } from "../../../core/index.ts";

/** Names the ranks' devices where MPI's own launcher starts them: it hands no options of ours to the ranks. */
const DEVICES_VARIABLE = "CHORALE_MPI_DEVICES";

/** The ordinals that the environment names. @throws InvalidArgumentError for what is no list of ordinals */
export function devicesOfEnvironment(
  ranks: number,
  env: NodeJS.ProcessEnv = process.env,
): readonly number[] | undefined {
  const said = env[DEVICES_VARIABLE];
  if (said === undefined || said === "") return undefined;
  const devices = said.split(",").map((one) => (/^\s*\d+\s*$/.test(one) ? Number(one) : Number.NaN));
  const problem = devicesProblem(devices, ranks);
  if (problem !== undefined)
    throw new InvalidArgumentError(DEVICES_VARIABLE, said, `${problem}, with commas between them`);
  return devices;
}

/** What `devices` should be, if it is something else. */
export function devicesProblem(devices: unknown, ranks: number): string | undefined {
  const areOrdinals = Array.isArray(devices) && devices.every((one) => Number.isSafeInteger(one) && one >= 0);
  return areOrdinals && devices.length >= ranks ? undefined : `CUDA ordinals, one for each of ${ranks} ranks`;
}
