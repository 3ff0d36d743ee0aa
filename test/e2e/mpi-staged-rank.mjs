/** One of two ranks on mpi with their tensors on a device: what calls on them do beside those of the conformance suite. */
import { CudaStream, deviceTensor, MemoryPool, openDevice, requireCudaDriver } from "chorale/device";

const said = (fn) => {
  try {
    fn();
    return "nothing";
  } catch (error) {
    return error.message;
  }
};

export default async (world) => {
  const { comm, rank } = world;
  const make = (...values) => {
    const x = world.tensor("f32", [values.length]);
    world.upload(x, Float32Array.from(values));
    return x;
  };
  const x = make(rank + 1, rank + 1, rank + 1);
  comm.allReduce(x);
  comm.allReduce(x).wait();
  const chained = [...world.download(x)];

  const [given, got] = [make(10 + rank), make(0)];
  const sent = comm.send(given, 1 - rank);
  await comm.recv(got, 1 - rank);
  await sent;
  const [more, both] = [make(20 + rank), make(0)];
  const works = comm.batch((b) => {
    b.send(more, 1 - rank);
    b.recv(both, 1 - rank);
  });
  await works;
  const passed = [world.download(got)[0], world.download(both)[0]];

  // Rank 1 sends only when rank 0 has tried to free what it is to receive into.
  let inUse = "in use by 1 pending call";
  if (rank === 0) {
    const work = comm.recv(got, 1);
    inUse = said(() => world.free(got));
    await comm.send(given, 1);
    await work;
  } else {
    await comm.recv(got, 0);
    await comm.send(given, 0);
  }

  const onHost = new Float32Array(3).fill(rank + 1);
  await comm.allReduce(onHost, { output: x });
  const fromHost = [...world.download(x)];
  world.free(x);
  const freed = said(() => comm.allReduce(x));

  const device = openDevice(requireCudaDriver(), 0);
  const stray = deviceTensor(new MemoryPool(device), CudaStream.create(device), "f32", [1]);
  const foreign = said(() => comm.allReduce(stray));
  device.close();
  await comm.barrier();
  return { kind: given.storage.kind, chained, passed, fromHost, inUse, freed, foreign };
};
