/** What a group that closes still has for others: copies of large sends that nobody has asked for yet. */
import { type ChoraleError, TimeoutError } from "../../../core/index.ts";
import { type GroupPlace, runningTime } from "../../comm/index.ts";
import type { TcpContext } from "./tcp-context.ts";

/**
 * Waits until all of it was asked for.
 * @param waiting the member that has not asked; negative when there is none
 * @returns the error of a deadline that passed first
 */
export async function untilDelivered(
  { options: { timeoutMs }, pump }: TcpContext,
  { group, ranks }: GroupPlace,
  waiting: () => number,
): Promise<ChoraleError | undefined> {
  const until = runningTime() + timeoutMs;
  for (let member = waiting(); member >= 0; member = waiting()) {
    if (runningTime() > until) {
      const absent = [{ rank: ranks[member] ?? member, arrived: false }];
      return new TimeoutError(`closing group ${group}: a send was not received`, timeoutMs, absent);
    }
    pump.turn(0);
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  return undefined;
}
