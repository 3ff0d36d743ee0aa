/** How long a rank stays for its peers before it sleeps, in polls: no peer, no clock. */
import { expect, it } from "vitest";
import { WORLD } from "./layout.ts";
import { THREAD_WAITING } from "./shared-world.ts";
import { type Drivable, Driver } from "./spin-then-sleep.ts";

/** A rank of many, whose calls are done while it stays for them, or only after it slept. */
function rank(oversubscribed: boolean) {
  const words = new Int32Array(new SharedArrayBuffer(65_536));
  const driver = new Driver(words, THREAD_WAITING, 0, 4, oversubscribed, undefined);
  let seq = 0;
  const call = (comesInTime: boolean): number => {
    const stays: number[] = [];
    const work = { seq, settled: false };
    const engine = {
      hasPending: true,
      pump: () => {
        work.settled = true;
        return true;
      },
      spin: (_: Drivable, polls: number) => {
        stays.push(polls);
        work.settled = comesInTime;
      },
      checkDeadlines: () => Number.POSITIVE_INFINITY,
    };
    driver.count(seq++);
    driver.drive(Object.assign(work, { engine }), undefined);
    return stays[0] ?? 0;
  };
  /** The first calls after each 64th are on trial: they stay long in any case. */
  for (let i = 0; i < 8; i++) call(true);
  return { call, usual: call(true), isAlert: () => words[WORLD.alert] !== 0 };
}

it("stays as long as before after a few calls whose peers were held up, and less when they go on coming late", () => {
  const { call, usual } = rank(false);
  for (const _ of [1, 2, 3]) expect(call(false)).toBe(usual);
  expect(call(true)).toBe(usual);
  expect([1, 2, 3, 4, 5, 6].map(() => call(false) / usual)).toEqual([1, 1, 1, 1, 1 / 2, 1 / 4]);
  expect([call(true), call(true), call(true), call(true)]).toEqual([usual / 8, usual / 4, usual / 2, usual]);
});

it("goes to sleep sooner at once where ranks share cores", () => {
  const { call, usual } = rank(true);
  expect([call(false), call(false)]).toEqual([usual, usual >> 1]);
});

it("has its peers look for sleepers behind a fence from its first sleep until it has not slept for 64 calls", () => {
  const { call, isAlert } = rank(false);
  expect(isAlert()).toBe(false);
  call(false);
  expect(isAlert()).toBe(true);
  // To the next two calls whose number is a multiple of 64.
  const wasAlert = Array.from({ length: 130 }, () => {
    call(true);
    return isAlert();
  });
  expect([wasAlert.indexOf(false) >= 64, isAlert()]).toEqual([true, false]);
});
