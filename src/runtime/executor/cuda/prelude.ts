/**
 * The part of a generated kernel that is the same for all plans: waiting, moving, reducing, packets. Work is shared out by
 * position: unit u of an operation (16 bytes of data, counted from where the strand's share begins) belongs to thread u
 * modulo STRIDE, whatever the operation and however its buffers are aligned. So two operations of a strand are ordered
 * position by position without the threads' meeting, which is all that a plan asks for (docs/semantics.md, section 2).
 */
import { LINES } from "./prelude-lines.ts";
import { SHEETS } from "./prelude-sheets.ts";

/** Waiting: every loop gives way to the host's abort word; debug builds are bounded and say who waits. */
const WAITING = `// A place in the plan, for reports: strand's operation, and operation in a pipeline's body + 1.
struct Site { int op, body; };

__device__ __forceinline__ u32 strandOfBlock() { return blockIdx.x / TEAM; }

// Counts the turns of a loop that waits. True: give up.
__device__ __noinline__ bool lookForAbort(const u32* abort) { return loadWord(abort) != 0; }
struct Patience {
  u32 turns = 0;
  __device__ __forceinline__ bool isOver(const Launch& L, Site site, u32 seen, u32 wanted) {
    rest();
    turns++;
#ifdef CHORALE_DEBUG
    // Who waits for a launch of others to begin or end does so because a strand of theirs waits: that one is to say so first.
    if (turns >= (site.op < 0 ? 4u * CHORALE_DEBUG : CHORALE_DEBUG)) {
      u32* report = L.state + STATE_REPORT;
      if (swapAtDevice(report, 0, 1) == 0) {
        report[1] = strandOfBlock(); report[2] = site.op; report[3] = site.body; report[4] = seen; report[5] = wanted;
        fenceSystem();
      }
      *(volatile u32*)L.abort = 1;
      return true;
    }
#endif
    (void)site; (void)seen; (void)wanted;
    // Early for the first time: behind a launch that was ended, thousands of others may be on the stream.
    if ((turns & 255u) != 16u || !lookForAbort(L.abort)) return false;
    turns--;  // what is waited for next is over at once
    return true;
  }
};

__device__ __forceinline__ u32* counterOf(const Launch& L, int rank, int counter) {
  return (u32*)(L.window[rank] + WINDOW_COUNTERS + (i64)COUNTER_STRIDE * counter);
}
// Waits until the counter has reached the target; counters run over.
__device__ __forceinline__ void await(const Launch& L, const u32* at, u32 target, Site site) {
  Patience patience;
  for (u32 seen = loadAcquire(at); (int)(seen - target) < 0; seen = loadAcquire(at))
    if (patience.isOver(L, site, seen, target)) return;
}
__device__ inline void lock(const Launch& L, Site site) {
  Patience patience;
  while (swapAtDevice(L.state + STATE_LOCK, 0, 1) != 0)
    if (patience.isOver(L, site, 1, 0)) return;
}
__device__ inline void unlock(const Launch& L) { addAtDevice(L.state + STATE_LOCK, (u32)-1); }

// The strands of a rank meet. One thread of each comes here.
__device__ inline void meetStrands(const Launch& L, int barrier, u32 numStrands, Site site) {
  u32* const come = L.state + STATE_BARRIERS + 2 * barrier;
  const u32 generation = loadAcquire(come + 1);
  if (addAtDevice(come, 1) == numStrands - 1) {
    *(volatile u32*)come = 0;
    addAtDevice(come + 1, 1);
    return;
  }
  Patience patience;
  for (u32 seen = generation; seen == generation; seen = loadAcquire(come + 1))
    if (patience.isOver(L, site, seen, generation + 1)) return;
}`;

/**
 * Between launches: which ranks are there, where their buffers are, and whether they are done.
 * @param shifts whether something must be added to addresses that peers tell
 */
const meeting = (
  shifts: boolean,
) => `// What blocks remember of a launch: its number, its size, and how many have told their ends.
__device__ __forceinline__ char* blockState(const Launch& L, int block) {
  return (char*)(L.state + STATE_BLOCKS + BLOCK_WORDS * block);
}
__device__ __forceinline__ uint4 remembered(const Launch& L, u32 launch, u32 told) {
  uint4 v;
  v.x = launch; v.y = (u32)sizeOfLaunch(L); v.z = (u32)(sizeOfLaunch(L) >> 32); v.w = told;
  return v;
}
__device__ __forceinline__ bool isResized(const Launch& L, uint4 last) {
  return last.y != (u32)sizeOfLaunch(L) || last.z != (u32)(sizeOfLaunch(L) >> 32);
}
// Where the buffers of the ranks are in this launch.
struct Buffers { char* input[NUM_RANKS]; char* output[NUM_RANKS]; };

__device__ __forceinline__ uint4 packet(u64 value, u32 flag) {
  uint4 v;
  v.x = (u32)value; v.y = flag; v.z = (u32)(value >> 32); v.w = flag;
  return v;
}
// Tells every peer that this rank has begun. The launches before this one on its stream are done, so its input is there.
__device__ inline void greet(const Launch& L, u32 flag) {
  for (int peer = threadIdx.x; peer < NUM_RANKS; peer += THREADS) {
    if (peer == (int)L.rank) continue;
    char* const at = L.window[peer] + WINDOW_GREETINGS + GREETING_BYTES * (2 * L.rank + (flag & 1u));
    storePacket16(at, packet((u64)L.input, flag));
    storePacket16(at + 16, packet((u64)L.output, flag));
  }
}
__device__ __forceinline__ bool isGreeting(uint4 v, u32 flag) { return v.y == flag && v.w == flag; }
__device__ __forceinline__ char* addressIn(uint4 v) { return (char*)((u64)v.z << 32 | v.x); }
// Waits until every rank has begun this launch. False: told to end before that, so that it is not known where their buffers are.
__device__ inline bool meetRanks(const Launch& L, u32 flag, Buffers& buffers) {
  bool isOver = false;
  for (int peer = threadIdx.x; peer < NUM_RANKS; peer += THREADS) {
    buffers.input[peer] = L.input;
    buffers.output[peer] = L.output;
    if (peer == (int)L.rank) continue;
    const char* const at = L.window[L.rank] + WINDOW_GREETINGS + GREETING_BYTES * (2 * peer + (flag & 1u));
    uint4 input = loadPacket16(at), output = loadPacket16(at + 16);
    Patience patience;
    while (!isGreeting(input, flag) || !isGreeting(output, flag)) {
      if (patience.isOver(L, Site{-1, 0}, input.y, flag)) {
        isOver = true;
        break;
      }
      input = loadPacket16(at);
      output = loadPacket16(at + 16);
    }
    buffers.input[peer] = addressIn(input)${shifts ? " + L.inputShift[peer]" : ""};
    buffers.output[peer] = addressIn(output)${shifts ? " + L.outputShift[peer]" : ""};
  }
  return !__syncthreads_or(isOver);
}
// Where a launch is of another size than the one before, other things lie in a place of scratch. What orders launches of one
// size says nothing of that: all ranks begin this launch, and so have ended those before, before anything is written.
__device__ inline void meetAfterResize(const Launch& L, u32 launch) {
  if (blockIdx.x == 0)
    for (int peer = threadIdx.x; peer < NUM_RANKS; peer += THREADS)
      if (peer != (int)L.rank) storeRelease((u32*)(L.window[peer] + WINDOW_BEGUN + COUNTER_STRIDE * L.rank), launch);
  for (int peer = threadIdx.x; peer < NUM_RANKS; peer += THREADS)
    if (peer != (int)L.rank)
      await(L, (u32*)(L.window[L.rank] + WINDOW_BEGUN + COUNTER_STRIDE * peer), launch, Site{-1, 0});
  __syncthreads();
}
// Whether all other blocks of the rank have ended. One thread of each comes here; what they did is seen by the last.
__device__ inline bool isLastBlock(const Launch& L, u32 numBlocks) {
  if (numBlocks == 1) return true;
  if (addAtDevice(L.state + STATE_ENDED, 1) != numBlocks - 1) return false;
  *(volatile u32*)(L.state + STATE_ENDED) = 0;
  return true;
}
// The host learns that the launch is done when all of END_WORDS words say so: few blocks, which write some each, need not meet
// for that. What the blocks wrote comes before, for all who read it from this device's memory: the host only ever has it copied.
__device__ inline void tellHost(const Launch& L, u32 first, u32 stride, u32 told) {
  if (L.done == nullptr) return;
  fenceDevice();
  for (u32 i = first; i < END_WORDS; i += stride) *(volatile u32*)(L.done + i) = told;
}
__device__ __forceinline__ void tellEnd(const Launch& L, u32 block, u32 numBlocks, u32 told) {
  if (L.done == nullptr || threadIdx.x != 0) return;
  if (numBlocks <= END_WORDS) tellHost(L, block, numBlocks, told);
  else if (isLastBlock(L, numBlocks)) tellHost(L, 0, 1, told);
}
// One thread of a rank whose blocks have all done their part tells the peers, and waits for them: they may still use its buffers.
__device__ inline void sayFarewell(const Launch& L, u32 flag) {
  fenceSystem();
  for (int peer = 0; peer < NUM_RANKS; peer++)
    if (peer != (int)L.rank) *(volatile u32*)(L.window[peer] + WINDOW_FAREWELLS + COUNTER_STRIDE * L.rank) = flag;
  for (int peer = 0; peer < NUM_RANKS; peer++)
    if (peer != (int)L.rank)
      await(L, (u32*)(L.window[L.rank] + WINDOW_FAREWELLS + COUNTER_STRIDE * peer), flag, Site{-2, 0});
}
// The last block of the rank to end does so.
__device__ inline void partRanks(const Launch& L, u32 numBlocks, u32 flag, u32 told) {
  if (threadIdx.x != 0) return;
  fenceSystem();
  if (!isLastBlock(L, numBlocks)) return;
  sayFarewell(L, flag);
  tellHost(L, 0, 1, told);
}`;

/** Between launches of a kernel that runs ahead: a rank that writes scratch waits for those that use it, some launches behind. */
const SLOTS = `// Tells the peers that write scratch which this rank uses that it has begun: its launches before this one have ended.
__device__ __forceinline__ void tellBegun(const Launch& L, int rank, u32 launch) {
  for (int peer = threadIdx.x; peer < NUM_RANKS; peer += THREADS)
    if (waitsFor(peer, rank)) *(volatile u32*)(L.window[peer] + WINDOW_BEGUN + COUNTER_STRIDE * rank) = launch;
}
// Launches take the slots of scratch in turn. Waits until no peer is in a launch any more that had this one's.
__device__ __forceinline__ void awaitSlot(const Launch& L, int rank, u32 launch) {
  for (int peer = threadIdx.x; peer < NUM_RANKS; peer += THREADS)
    if (waitsFor(rank, peer))
      await(L, (u32*)(L.window[rank] + WINDOW_BEGUN + COUNTER_STRIDE * peer), launch - (u32)L.slots + 1, Site{-3, 0});
  __syncthreads();
}`;

const SHARES = `__device__ __forceinline__ i64 least(i64 a, i64 b) { return a < b ? a : b; }
__device__ __forceinline__ i64 most(i64 a, i64 b) { return a > b ? a : b; }
// (rank + turn) modulo NUM_RANKS, for turn below NUM_RANKS.
__device__ __forceinline__ int turned(int rank, int turn) {
  return rank + turn < NUM_RANKS ? rank + turn : rank + turn - NUM_RANKS;
}
// Threads of a strand, of all its blocks, and which one of them this is.
constexpr int STRIDE = TEAM * THREADS;
__device__ __forceinline__ u32 position() { return TEAM == 1 ? threadIdx.x : blockIdx.x % TEAM * THREADS + threadIdx.x; }
// Where part "index" of "parts" of a range begins: the first parts have one granule more where they do not divide it.
__device__ __forceinline__ i64 cut(i64 bytes, i64 index, i64 parts) {
  if (index == parts) return bytes;
  const i64 granules = bytes / GRANULE;
  return (index * (granules / parts) + least(index, granules % parts)) * GRANULE;
}`;

const UNITS = `union Unit {
  uint4 words;
  u32 word[4];
  Element element[16 / sizeof(Element)];
};
constexpr int ELEMENTS = 16 / sizeof(Element);

// A unit of which "bytes" are there, at any alignment that elements have.
__device__ inline Unit loadPart(const char* at, i64 bytes) {
  Unit v;
  v.words.x = v.words.y = v.words.z = v.words.w = 0;
#pragma unroll
  for (int e = 0; e < ELEMENTS; e++)
    if ((i64)(e * sizeof(Element)) < bytes) v.element[e] = ((const Element*)at)[e];
  return v;
}
__device__ inline void storePart(char* at, Unit v, i64 bytes) {
#pragma unroll
  for (int e = 0; e < ELEMENTS; e++)
    if ((i64)(e * sizeof(Element)) < bytes) ((Element*)at)[e] = v.element[e];
}
__device__ __forceinline__ bool isAligned(const void* at) { return WHOLE_UNITS || ((u64)at & 15u) == 0; }
__device__ __forceinline__ Unit loadUnit(const char* at, i64 bytes) {
  if (WHOLE_UNITS || (bytes >= 16 && isAligned(at))) {
    Unit v;
    v.words = *(const uint4*)at;
    return v;
  }
  return loadPart(at, bytes);
}
__device__ __forceinline__ void storeUnit(char* at, Unit v, i64 bytes) {
  if (WHOLE_UNITS || (bytes >= 16 && isAligned(at))) *(uint4*)at = v.words;
  else storePart(at, v, bytes);
}`;

const MOVES = `struct Op_none {};
template <class Op> struct Copies { static constexpr bool value = false; };
template <> struct Copies<Op_none> { static constexpr bool value = true; };

__device__ __forceinline__ Wide scalarOf(const Launch& L) { return *(const Wide*)&L.scalar; }

// All operands of a unit at once: widened, combined in their order, rounded once.
template <class Op, int IN> __device__ __forceinline__ Unit combineUnits(const Unit (&in)[IN], Wide scalar) {
  if constexpr (Copies<Op>::value) return in[0];
  else {
    Unit result;
#pragma unroll
    for (int e = 0; e < ELEMENTS; e++) {
      Wide x = Op::operand(widen(in[0].element[e]), scalar);
#pragma unroll
      for (int i = 1; i < IN; i++) x = Op::combine(x, Op::operand(widen(in[i].element[e]), scalar));
      result.element[e] = narrow(Op::finish(x));
    }
    return result;
  }
}

// Every out = op over all ins. Plain data.
template <class Op, int IN, int OUT>
__device__ __forceinline__ void move(const char* const (&in)[IN], char* const (&out)[OUT], i64 bytes, Wide scalar) {
  u64 address = 0;
#pragma unroll
  for (int i = 0; i < IN; i++) address |= (u64)in[i];
#pragma unroll
  for (int o = 0; o < OUT; o++) address |= (u64)out[o];
  const i64 whole = WHOLE_UNITS || (address & 15u) == 0 ? bytes / 16 : 0;
  i64 u = position();
  for (; u + (UNROLL - 1) * STRIDE < whole; u += UNROLL * STRIDE) {
    Unit v[UNROLL][IN];
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
#pragma unroll
      for (int i = 0; i < IN; i++) v[k][i].words = *(const uint4*)(in[i] + 16 * (u + k * STRIDE));
    Unit result[UNROLL];
#pragma unroll
    for (int k = 0; k < UNROLL; k++) result[k] = combineUnits<Op, IN>(v[k], scalar);
    // All that goes to one place, then to the next: links carry 1 % more so.
#pragma unroll
    for (int o = 0; o < OUT; o++)
#pragma unroll
      for (int k = 0; k < UNROLL; k++) *(uint4*)(out[o] + 16 * (u + k * STRIDE)) = result[k].words;
  }
  // The last round may be short: what there is of it is still loaded at once.
  if constexpr (UNROLL > 1) {
    if (u + STRIDE < whole) {
      Unit v[UNROLL - 1][IN];
#pragma unroll
      for (int k = 0; k < UNROLL - 1; k++)
#pragma unroll
        for (int i = 0; i < IN; i++)
          if (u + k * STRIDE < whole) v[k][i].words = *(const uint4*)(in[i] + 16 * (u + k * STRIDE));
#pragma unroll
      for (int k = 0; k < UNROLL - 1; k++)
        if (u + k * STRIDE < whole) {
          const Unit result = combineUnits<Op, IN>(v[k], scalar);
#pragma unroll
          for (int o = 0; o < OUT; o++) *(uint4*)(out[o] + 16 * (u + k * STRIDE)) = result.words;
        }
      while (u < whole) u += STRIDE;
    }
  }
#pragma unroll 1
  for (; 16 * u < bytes; u += STRIDE) {
    Unit v[IN];
    const i64 left = bytes - 16 * u;
#pragma unroll
    for (int i = 0; i < IN; i++) v[i] = loadUnit(in[i] + 16 * u, left);
    const Unit result = combineUnits<Op, IN>(v, scalar);
#pragma unroll
    for (int o = 0; o < OUT; o++) storeUnit(out[o] + 16 * u, result, left);
  }
}
template <int IN, int OUT>
__device__ __forceinline__ void copy(const char* const (&in)[IN], char* const (&out)[OUT], i64 bytes) {
  move<Op_none, IN, OUT>(in, out, bytes, (Wide)0);
}`;

/** Packets of 8 bytes (4 of data, 4 of the launch's number), two of them together where there is room: 16 bytes. */
const PACKETS = `// Packets: every word of data has the launch's number beside it. A unit of 16 bytes is 32 bytes of packets.
__device__ __forceinline__ void storePackets(char* at, Unit v, i64 bytes, u32 flag) {
  if (bytes >= 13 && isAligned(at)) {
    uint4 low, high;
    low.x = v.word[0]; low.y = flag; low.z = v.word[1]; low.w = flag;
    high.x = v.word[2]; high.y = flag; high.z = v.word[3]; high.w = flag;
    storePacket16(at, low);
    storePacket16(at + 16, high);
    return;
  }
#pragma unroll
  for (int w = 0; w < 4; w++) {
    if ((i64)(4 * w) >= bytes) break;
    uint2 p;
    p.x = v.word[w]; p.y = flag;
    storePacket8(at + 8 * w, p);
  }
}
// Waits for the packets of a unit, all of them or the first ones.
__device__ __forceinline__ Unit loadPackets(const Launch& L, const char* at, i64 bytes, u32 flag, Site site) {
  Unit v;
  Patience patience;
  if (bytes >= 13 && isAligned(at)) {
    uint4 low = loadPacket16(at), high = loadPacket16(at + 16);
    while (low.y != flag || low.w != flag || high.y != flag || high.w != flag) {
      if (patience.isOver(L, site, high.w, flag)) break;
      low = loadPacket16(at);
      high = loadPacket16(at + 16);
    }
    v.word[0] = low.x; v.word[1] = low.z; v.word[2] = high.x; v.word[3] = high.z;
    return v;
  }
#pragma unroll
  for (int w = 0; w < 4; w++) {
    v.word[w] = 0;
    if ((i64)(4 * w) >= bytes) continue;
    uint2 p = loadPacket8(at + 8 * w);
    while (p.y != flag) {
      if (patience.isOver(L, site, p.y, flag)) break;
      p = loadPacket8(at + 8 * w);
    }
    v.word[w] = p.x;
  }
  return v;
}
template <int OUT>
__device__ __forceinline__ void pack(const char* in, char* const (&out)[OUT], i64 bytes, u32 flag) {
#pragma unroll 2
  for (i64 u = position(); 16 * u < bytes; u += STRIDE) {
    const Unit v = loadUnit(in + 16 * u, bytes - 16 * u);
#pragma unroll
    for (int o = 0; o < OUT; o++) storePackets(out[o] + 32 * u, v, bytes - 16 * u, flag);
  }
}
// Every out = op over a plain operand, where there is one, and packets.
template <class Op, int PLAIN, int IN, int OUT>
__device__ __forceinline__ void reducePackets(const Launch& L, const char* const (&in)[PLAIN + IN],
                                              char* const (&out)[OUT], i64 bytes, Wide scalar, u32 flag, Site site) {
#pragma unroll 1
  for (i64 u = position(); 16 * u < bytes; u += STRIDE) {
    Unit v[PLAIN + IN];
    const i64 left = bytes - 16 * u;
#pragma unroll
    for (int i = 0; i < PLAIN; i++) v[i] = loadUnit(in[i] + 16 * u, left);
#pragma unroll
    for (int i = PLAIN; i < PLAIN + IN; i++) v[i] = loadPackets(L, in[i] + 32 * u, left, flag, site);
    const Unit result = combineUnits<Op, PLAIN + IN>(v, scalar);
#pragma unroll
    for (int o = 0; o < OUT; o++) storeUnit(out[o] + 16 * u, result, left);
  }
}
template <int OUT>
__device__ __forceinline__ void forward(const Launch& L, const char* in, char* const (&out)[OUT], i64 bytes, u32 flag,
                                        Site site) {
#pragma unroll 1
  for (i64 u = position(); 16 * u < bytes; u += STRIDE) {
    const Unit v = loadPackets(L, in + 32 * u, bytes - 16 * u, flag, site);
#pragma unroll
    for (int o = 0; o < OUT; o++) storePackets(out[o] + 32 * u, v, bytes - 16 * u, flag);
  }
}
// Packets as they lie there, with their numbers.
template <int OUT> __device__ __forceinline__ void forwardRaw(const char* in, char* const (&out)[OUT], i64 bytes) {
#pragma unroll 1
  for (i64 w = position(); 4 * w < bytes; w += STRIDE)
#pragma unroll
    for (int o = 0; o < OUT; o++) storePacket8(out[o] + 8 * w, loadPacket8(in + 8 * w));
}`;

export const PRELUDE = {
  waiting: WAITING,
  meeting: meeting(false),
  meetingOfProcesses: meeting(true),
  slots: SLOTS,
  shares: SHARES,
  units: UNITS,
  moves: MOVES,
  words: PACKETS,
  lines: LINES,
  sheets: SHEETS,
};
