/** A rank whose all-reduce is broken in one way, named by the variable BROKEN, or whose backend has `no` dtype. */
import type { Communicator, Data, Tensor, Work, World } from "chorale";
import { type ConformanceJob, type RankReport, runConformanceRank } from "chorale/conformance";

type Damage = (result: Tensor, input: Data, rank: number) => void;

function bytesOf(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

const DAMAGES: Readonly<Record<string, Damage>> = {
  "one bit on every rank": ({ data }) => {
    const bytes = bytesOf(data);
    if (bytes.length > 0) bytes[0] = (bytes[0] ?? 0) ^ 1;
  },
  "one bit of the last element on one rank": ({ data }, _, rank) => {
    const bytes = bytesOf(data);
    if (bytes.length > 0 && rank === 1) bytes[bytes.length - 1] = (bytes[bytes.length - 1] ?? 0) ^ 1;
  },
  "a byte behind the result": ({ data }) => {
    const behind = data.byteOffset + data.byteLength;
    if (behind < data.buffer.byteLength) new Uint8Array(data.buffer)[behind] = 1;
  },
  "the rank": (_result, _input, rank) => {
    if (rank === 1) process.exit(3);
  },
  "the input": ({ data }, input) => {
    const view = ArrayBuffer.isView(input) ? input : input.data;
    const apart = view.buffer !== data.buffer || view.byteOffset !== data.byteOffset;
    if (view.byteLength > 0 && apart) bytesOf(view)[0] = (bytesOf(view)[0] ?? 0) ^ 1;
  },
};

function damaged(work: Work<Tensor>, damage: (result: Tensor) => void): Work<Tensor> {
  const promise = () => Promise.resolve(made);
  const made: Work<Tensor> = {
    [Symbol.toStringTag]: "Work",
    catch: (reject) => promise().catch(reject),
    finally: (then) => promise().finally(then),
    seq: work.seq,
    op: work.op,
    group: work.group,
    get state() {
      return work.state;
    },
    wait(options) {
      const result = work.wait(options);
      damage(result);
      return result;
    },
    then(resolve, reject) {
      return work
        .then((result) => {
          damage(result);
          return result;
        })
        .then(resolve, reject);
    },
  };
  return made;
}

export default function run(world: World, job: ConformanceJob): Promise<RankReport> {
  const without = /^no (\w+)$/.exec(process.env.BROKEN ?? "")?.[1];
  const damage = without === undefined ? DAMAGES[process.env.BROKEN ?? ""] : () => {};
  if (damage === undefined) throw new Error(`no damage named ${process.env.BROKEN}`);
  const bind = <T extends object>(target: T, key: string | symbol): unknown => {
    const value = Reflect.get(target, key, target) as unknown;
    return typeof value === "function" ? value.bind(target) : value;
  };
  const comm = new Proxy(world.comm, {
    get(target, key) {
      if (key === "capabilities") {
        const table = target.capabilities();
        return () => ({ ...table, dtypes: table.dtypes.filter((dtype) => dtype !== without) });
      }
      if (key !== "allReduce") return bind(target, key);
      const allReduce: Communicator["allReduce"] = (input, options) =>
        damaged(target.allReduce(input, options), (result) => damage(result, input, target.rank));
      return allReduce;
    },
  });
  return runConformanceRank(
    new Proxy(world, { get: (target, key) => (key === "comm" ? comm : bind(target, key)) }),
    job,
  );
}
