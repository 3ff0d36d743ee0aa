/** Which of the calls that were issued may begin. */
import { expect, it } from "vitest";
import { type CallParts, firstToBegin, PendingCall } from "./tcp-work.ts";

let numLooks = 0;
const memory = new ArrayBuffer(1024);

/** A call that writes 8 bytes of the memory. */
function call(kind: "collective" | "recv", byteOffset: number, state: PendingCall["state"] = "queued"): PendingCall {
  const uses = [{ region: { storage: memory, byteOffset, sizeBytes: 8 }, writes: true }];
  const parts = {
    arrival: { lane: { kind, peer: 1 } },
    timeoutMs: 1000,
    get uses() {
      numLooks++;
      return uses;
    },
  };
  const made = new PendingCall(parts as unknown as CallParts);
  made.state = state;
  return made;
}

it("is the first that waits for none before it", () => {
  const running = call("collective", 0, "running");
  const [next, apart, same] = [call("collective", 8), call("recv", 16), call("recv", 0)];
  expect(firstToBegin([running, next])).toBeUndefined();
  expect(firstToBegin([running, next, same])).toBeUndefined();
  expect(firstToBegin([running, next, same, apart])).toBe(apart);
  expect(firstToBegin([next, running])).toBe(next);
  const receiving = call("recv", 8, "running");
  expect(firstToBegin([receiving, next])).toBeUndefined();
  expect(firstToBegin([receiving, call("collective", 0)])).toBeDefined();
  expect(firstToBegin([])).toBeUndefined();
});

it("compares no memory of collectives that wait for one before them, however many there are", () => {
  const pending = [call("collective", 0, "running")];
  numLooks = 0;
  for (let i = 0; i < 3000; i++) {
    pending.push(call("collective", 8));
    if (i % 100 === 0) expect(firstToBegin(pending)).toBeUndefined();
  }
  expect(numLooks).toBe(0);
});
