/** The stand-in GPU library keeps CUDA's rules of events and streams; a test over it is worth what these are. */
import koffi from "koffi";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { buildFakeGpu, heldByFakeGpu } from "./fake-gpu.ts";

const library = buildFakeGpu();
const [DONE, NOT_READY, INVALID_HANDLE] = [0, 600, 400];

describe.skipIf(library === undefined)("the stand-in GPU library (needs a C++ compiler)", () => {
  const so = koffi.load(library ?? "");
  /** All arguments are words of 64 bits. */
  const raw = (name: string, num: number) => so.func(name, "int", Array<string>(num).fill("uint64"));
  const call = (name: string, ...args: (bigint | number)[]) => raw(name, args.length)(...args) as number;
  const must = (name: string, ...args: (bigint | number)[]) =>
    expect([name, call(name, ...args)]).toEqual([name, DONE]);
  const made = (name: string, ...args: (bigint | number)[]): bigint => {
    const out = new BigUint64Array(1);
    const types = ["void *", ...args.map(() => "uint64")];
    expect([name, so.func(name, "int", types)(out, ...args)]).toEqual([name, DONE]);
    return out[0] ?? 0n;
  };
  const UniqueId = koffi.struct({ internal: koffi.array("uint8", 128, "Typed") });
  const stream = () => made("cuStreamCreate", 0);
  const event = () => made("cuEventCreate", 0);
  const stateOf = (of: bigint) => call("cuStreamQuery", of);

  const comms: bigint[] = [];

  /** Keeps `on` busy until the returned function is called: a receive of a rank from itself. */
  function gate(on: bigint): () => void {
    const id = new Uint8Array(128);
    so.func("ncclGetUniqueId", "int", ["void *"])(id);
    const out = new BigUint64Array(1);
    expect(so.func("ncclCommInitRank", "int", ["void *", "int", UniqueId, "int"])(out, 1, { internal: id }, 0)).toBe(0);
    const comm = out[0] ?? 0n;
    comms.push(comm);
    const [sender, bytes] = [stream(), made("cuMemAlloc_v2", 8)];
    must("ncclRecv", bytes, 1, 0, 0, comm, on);
    return () => {
      must("ncclSend", bytes + 4n, 1, 0, 0, comm, sender);
      expect(stateOf(sender)).toBe(DONE);
      must("cuStreamDestroy_v2", sender);
      must("cuMemFree_v2", bytes);
    };
  }

  beforeAll(() => {
    must("cuInit", 0);
    must("cuCtxSetCurrent", made("cuDevicePrimaryCtxRetain", 0));
  });
  afterAll(() => {
    // Together, for a rank's end waits for its device, on which a test that failed may have left others at work.
    must("ncclGroupStart");
    for (const comm of comms) must("ncclCommAbort", comm);
    must("ncclGroupEnd");
    const { violations, communicators, streams, memory } = heldByFakeGpu(library ?? "");
    expect({ violations, communicators, streams, memory }).toEqual({
      violations: 0,
      communicators: 0,
      streams: 0,
      memory: 0,
    });
  });

  it("lets a stream wait for the last record before the wait, and not for a later one", () => {
    const [waits, records, e] = [stream(), stream(), event()];
    const openWaits = gate(waits);
    must("cuEventRecord", e, records); // done at once
    must("cuStreamWaitEvent", waits, e, 0);
    const openRecords = gate(records);
    must("cuEventRecord", e, records);
    expect(stateOf(waits)).toBe(NOT_READY);
    openWaits();
    expect([stateOf(waits), stateOf(records), call("cuEventQuery", e)]).toEqual([DONE, NOT_READY, NOT_READY]);
    openRecords();
    expect([stateOf(records), call("cuEventQuery", e)]).toEqual([DONE, DONE]);
    for (const one of [waits, records]) must("cuStreamDestroy_v2", one);
    must("cuEventDestroy_v2", e);
  });

  it("lets two streams wait for each other's records of one event, which ends", () => {
    const [a, b, e] = [stream(), stream(), event()];
    const open = gate(a);
    must("cuEventRecord", e, a);
    must("cuStreamWaitEvent", b, e, 0);
    must("cuEventRecord", e, b);
    must("cuStreamWaitEvent", a, e, 0);
    open();
    expect([stateOf(a), stateOf(b), call("cuEventQuery", e)]).toEqual([DONE, DONE, DONE]);
    for (const one of [a, b]) must("cuStreamDestroy_v2", one);
    must("cuEventDestroy_v2", e);
  });

  it("does not take an earlier record's end for a later one's", () => {
    const [first, second, waits, e] = [stream(), stream(), stream(), event()];
    const [openFirst, openSecond] = [gate(first), gate(second)];
    must("cuEventRecord", e, first);
    must("cuEventRecord", e, second);
    must("cuStreamWaitEvent", waits, e, 0);
    openFirst();
    expect([stateOf(first), stateOf(waits), call("cuEventQuery", e)]).toEqual([DONE, NOT_READY, NOT_READY]);
    openSecond();
    expect([stateOf(waits), call("cuEventQuery", e)]).toEqual([DONE, DONE]);
    for (const one of [first, second, waits]) must("cuStreamDestroy_v2", one);
    must("cuEventDestroy_v2", e);
  });

  it("does not wait for an event that was never recorded", () => {
    const [waits, e] = [stream(), event()];
    must("cuStreamWaitEvent", waits, e, 0);
    must("cuEventSynchronize", e);
    expect([stateOf(waits), call("cuEventQuery", e)]).toEqual([DONE, DONE]);
    must("cuStreamDestroy_v2", waits);
    must("cuEventDestroy_v2", e);
  });

  it("does what a destroyed stream still had to do", () => {
    const [gone, waits, e, bytes] = [stream(), stream(), event(), made("cuMemAlloc_v2", 4)];
    const value = () => Buffer.from(koffi.view(bytes, 4)).readUInt32LE();
    must("cuStreamWriteValue32_v2", gone, bytes, 1, 0);
    expect(value()).toBe(1);
    const open = gate(gone);
    must("cuStreamWriteValue32_v2", gone, bytes, 2, 0);
    must("cuEventRecord", e, gone);
    must("cuStreamWaitEvent", waits, e, 0);
    must("cuStreamDestroy_v2", gone);
    expect(call("cuStreamDestroy_v2", gone)).toBe(INVALID_HANDLE);
    expect([value(), stateOf(waits), call("cuEventQuery", e)]).toEqual([1, NOT_READY, NOT_READY]);
    open();
    must("cuCtxSynchronize");
    expect([value(), stateOf(waits), call("cuEventQuery", e)]).toEqual([2, DONE, DONE]);
    must("cuStreamDestroy_v2", waits);
    must("cuEventDestroy_v2", e);
    must("cuMemFree_v2", bytes);
  });
});
