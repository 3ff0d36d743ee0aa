/**
 * The library of collective algorithms, each a short program of the language with its source cited.
 * Refuses to choose among them: which one serves a size is decided elsewhere.
 * Start reading in library.ts, the table of all of them.
 */

export { type AlgorithmArgs, ARGUMENT_NAMES, type HierarchicalArgs, type RootedArgs } from "./algorithm-args.ts";
export {
  type AllToAllVArgs,
  directAllGather,
  directAllToAll,
  directAllToAllV,
  directReduceScatter,
  oneShotAllReduce,
  oneShotPacketAllReduce,
  oneShotReadAllReduce,
  packetAllGather,
  packetReduceScatter,
  twoShotAllReduce,
  twoShotFusedReadAllReduce,
  twoShotPacketAllReduce,
  twoShotReadAllReduce,
} from "./all-pairs.ts";
export { bruckAllGather, bruckAllToAll } from "./bruck.ts";
export {
  hierarchicalAllGather,
  hierarchicalAllReduce,
  hierarchicalAllToAll,
  hierarchicalReduceScatter,
  type PipelinedHierarchicalArgs,
} from "./hierarchical.ts";
export { ALGORITHMS, type AlgorithmEntry, algorithm } from "./library.ts";
export { meshAllReduce, meshReduceScatter, multiRingAllReduce, ringStrides } from "./mesh.ts";
export {
  type MscclppArgs,
  type MscclppSendRecvArgs,
  mscclppAllGatherForward,
  mscclppAllGatherPackets,
  mscclppAllReduce,
  mscclppAllReduceNaive,
  mscclppAllReducePackets,
  mscclppAllReducePipeline,
  mscclppAllReduceSwitch,
  mscclppAllToAllRing,
  mscclppSendRecv,
} from "./mscclpp-programs.ts";
export {
  onePassAllGather,
  onePassAllReduce,
  onePassAllToAll,
  onePassBroadcast,
  onePassReduce,
  onePassReduceScatter,
  onePassScatter,
} from "./one-pass.ts";
export { directSendRecv, disseminationBarrier, pairwiseAllToAll, type SendRecvArgs } from "./point-to-point.ts";
export {
  halvingDoublingAllReduce,
  halvingReduceScatter,
  recursiveDoublingAllGather,
  recursiveDoublingAllReduce,
} from "./recursive.ts";
export { bidirectionalRingAllReduce, ringAllGather, ringAllReduce, ringReduceScatter } from "./ring.ts";
export {
  packetAllToAll,
  packetBroadcast,
  packetGather,
  packetReduce,
  packetScatter,
  type StagedArgs,
  stagedAllGather,
  stagedAllToAll,
  stagedBroadcast,
  stagedGather,
  stagedReduce,
  stagedScatter,
} from "./staged.ts";
export {
  readReduceScatter,
  type StreamingArgs,
  stagedAllReduce,
  streamingAllGather,
  streamingAllReduce,
  streamingPacketReduceScatter,
  streamingReduceScatter,
  streamingTwoPhaseAllReduce,
  twoPhaseAllReduce,
  twoPhasePacketAllReduce,
  twoPhasePushAllReduce,
  twoPhaseReadAllReduce,
} from "./streaming.ts";
export { type SwitchAllReduceArgs, switchAllGather, switchAllReduce } from "./switch-multicast.ts";
export {
  binomialAllReduce,
  binomialBroadcast,
  binomialGather,
  binomialReduce,
  binomialScatter,
  chainBroadcast,
  chainReduce,
  directBroadcast,
  directGather,
  directScatter,
  doubleBinaryTreeAllReduce,
  type PipelineArgs,
  scatterAllGatherBroadcast,
  scatterGatherReduce,
  twoTrees,
} from "./tree.ts";
