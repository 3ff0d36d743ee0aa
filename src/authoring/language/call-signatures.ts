/**
 * How each operation is called, as error messages say it and docs/language.md lists it (a test compares the two). `at` is a
 * strand's number (0 by default), a strand group, or `{ strand }`; synchronising operations take one strand and no group.
 */
export const CALLS = {
  program: "program({ name, collective, … }, (p) => { … })",
  // On the program.
  memoryChannel: "p.memoryChannel(from, to)",
  portChannel: "p.portChannel(from, to)",
  switchChannel: "p.switchChannel(ranks, buffer)",
  strandGroup: "p.strandGroup([0, 1])",
  loop: "p.loop({ unitBytes, numChunks }, () => { … })",
  copy: "p.copy(dst, src, at?)",
  copyAlong: "p.copyAlong(nodes, dst, src, at?)",
  copyPackets: "p.copyPackets(dst, src, at?)",
  forwardPackets: "p.forwardPackets(dst, src, at?)",
  reduce: "p.reduce(dst, src, others, at?)",
  reducePackets: "p.reducePackets(dst, src, others, at?)",
  // On a rank.
  rankScratch: "rank.scratch(numChunks)",
  rankCopy: "rank.copy(dst, src, at?)",
  rankCopyPackets: "rank.copyPackets(dst, src, at?)",
  rankUnpackPackets: "rank.unpackPackets(dst, src, at?)",
  rankReduce: "rank.reduce(src, others, { dst?, op?, strand? })",
  rankReducePackets: "rank.reducePackets(src, others, { dst?, op?, strand? })",
  rankBarrier: "rank.barrier([0, 1])",
  rankSemaphore: "rank.semaphore(initialValue?)",
  // On a channel: `dst` of a put and `src` of a get are the peer's.
  put: "channel.put(dst, src, at?)",
  putPackets: "channel.putPackets(dst, src, at?)",
  readPutPackets: "channel.readPutPackets(dst, src, at?)",
  putWithSignal: "portChannel.putWithSignal(dst, src, strand?)",
  putWithSignalAndFlush: "portChannel.putWithSignalAndFlush(dst, src, strand?)",
  get: "memoryChannel.get(dst, src, at?)",
  channelReduce: "memoryChannel.reduce(src, remote, { dst?, op?, strand? })",
  signal: "channel.signal({ strand?, relaxed?, sync? })",
  wait: "channel.wait({ strand?, relaxed?, sync? })",
  flush: "portChannel.flush({ strand?, sync? })",
  // On a switch channel, as one rank uses it: `offset` is the first chunk of the buffer that the channel spans.
  switchAt: "switchChannel.at(rank)",
  switchReduce: "view.reduce(dst, offset, { strand?, op? })",
  switchBroadcast: "view.broadcast(src, offset, strand?)",
  switchBroadcastPackets: "view.broadcastPackets(src, offset, strand?)",
  // On a semaphore.
  acquire: "semaphore.acquire({ strand?, sync? })",
  release: "semaphore.release({ strand?, sync? })",
} as const;
