/** The part of a generated kernel that moves packets as lines of 128 bytes: what `prelude.ts` says of positions holds for lines too. */

/** Lines of 128 bytes: seven units and one of flags, which a warp stores and loads in one piece. */
export const LINES = `// Packets as lines of 128 bytes: eight threads of a warp, of which the eighth carries the launch's number. One store of a
// warp arrives as whole lines over NVLink, and one load sees whole lines: NCCL's LL128 rests on the same.
constexpr int LINE_UNITS = 7;
constexpr int LINES_AT_ONCE = STRIDE / 8;
__device__ __forceinline__ int lineOf() { return position() / 8; }
__device__ __forceinline__ int lane() { return threadIdx.x & 7; }
__device__ __forceinline__ i64 linesOf(i64 bytes) {
  // A division of 32 bits takes a fifth of the instructions: no strand moves 64 GiB at once.
  return bytes <= 0 ? 0 : ((u32)((u64)(bytes + 15) >> 4) + LINE_UNITS - 1) / LINE_UNITS;
}
__device__ __forceinline__ Unit flags(u32 flag) {
  Unit v;
  v.words.x = v.words.y = v.words.z = v.words.w = flag;
  return v;
}
// Data as it was loaded, zeros in its place, or flags. The load does not wait for the launch's number, which comes from memory, too.
__device__ __forceinline__ Unit withFlags(Unit v, bool isData, u32 flag) {
  const u32 number = isData ? 0 : flag;
  v.words.x |= number; v.words.y |= number; v.words.z |= number; v.words.w |= number;
  return v;
}
__device__ __forceinline__ Unit loadData(const char* in, i64 u, bool isData, i64 bytes) {
  Unit v = flags(0);
  if (isData) v = loadUnit(in + 16 * u, bytes - 16 * u);
  return v;
}
// What a thread packs first.
__device__ __forceinline__ Unit loadFirst(const char* in, i64 bytes) {
  const i64 u = LINE_UNITS * lineOf() + lane();
  return loadData(in, u, lane() < LINE_UNITS && 16 * u < bytes, bytes);
}

template <int OUT>
__device__ __forceinline__ void packLine(i64 line, Unit v, char* const (&out)[OUT], i64 bytes, u32 flag) {
  const Unit packed = withFlags(v, lane() < LINE_UNITS && 16 * (LINE_UNITS * line + lane()) < bytes, flag);
#pragma unroll
  for (int o = 0; o < OUT; o++) storeLine(out[o] + 128 * line + 16 * lane(), packed.words);
}
template <int OUT>
__device__ __forceinline__ void packFrom(i64 line, const char* in, char* const (&out)[OUT], i64 bytes, u32 flag) {
  const i64 lines = linesOf(bytes);
#pragma unroll 2
  for (; line < lines; line += LINES_AT_ONCE) {
    const i64 u = LINE_UNITS * line + lane();
    packLine<OUT>(line, loadData(in, u, lane() < LINE_UNITS && 16 * u < bytes, bytes), out, bytes, flag);
  }
}
template <int OUT>
__device__ __forceinline__ void pack(const char* in, char* const (&out)[OUT], i64 bytes, u32 flag) {
  packFrom<OUT>(lineOf(), in, out, bytes, flag);
}
template <int OUT>
__device__ __forceinline__ void pack(Unit first, const char* in, char* const (&out)[OUT], i64 bytes, u32 flag) {
  if (lineOf() < linesOf(bytes)) packLine<OUT>(lineOf(), first, out, bytes, flag);
  packFrom<OUT>(lineOf() + LINES_AT_ONCE, in, out, bytes, flag);
}
// Waits for the lines that the warp looks at, of each operand one; threads without a line are ready.
template <int IN>
__device__ __forceinline__ void loadLines(const Launch& L, const char* const* in, i64 line, const bool (&wanted)[IN], Unit* v,
                                          u32 flag, Site site) {
  Patience patience;
  for (;;) {
    bool ready = true;
#pragma unroll
    for (int i = 0; i < IN; i++) v[i].words = loadOfLine(wanted[i] ? in[i] + 128 * line + 16 * lane() : nullptr);
#pragma unroll
    for (int i = 0; i < IN; i++)
      ready = ready && (!wanted[i] || lane() != LINE_UNITS || (v[i].words.x == flag && v[i].words.w == flag));
    if (allOfWarp(ready)) return;
    const bool over = patience.isOver(L, site, v[0].words.w, flag);
    if (allOfWarp(over || ready)) return;
  }
}
template <int N> __device__ __forceinline__ i64 mostLines(const i64 (&bytes)[N]) {
  i64 lines = 0;
#pragma unroll
  for (int i = 0; i < N; i++) lines = most(lines, linesOf(bytes[i]));
  return lines;
}
// As pack and unpack, of several at once.
template <int N>
__device__ __forceinline__ void packEach(const char* const (&in)[N], char* const (&out)[N], const i64 (&bytes)[N], u32 flag) {
  const i64 lines = mostLines<N>(bytes);
#pragma unroll 1
  for (i64 line = lineOf(); line < lines; line += LINES_AT_ONCE) {
    const i64 u = LINE_UNITS * line + lane();
    Unit v[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      const bool isData = lane() < LINE_UNITS && 16 * u < bytes[i];
      v[i] = withFlags(loadData(in[i], u, isData, bytes[i]), isData, flag);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
      if (line < linesOf(bytes[i])) storeLine(out[i] + 128 * line + 16 * lane(), v[i].words);
  }
}
template <int N>
__device__ __forceinline__ void unpackEach(const Launch& L, const char* const (&in)[N], char* const (&out)[N],
                                           const i64 (&bytes)[N], u32 flag, Site site) {
  const i64 lines = mostLines<N>(bytes);
#pragma unroll 1
  for (i64 first = position() / 32 * 4; first < lines; first += LINES_AT_ONCE) {
    const i64 line = first + lineOf() % 4, u = LINE_UNITS * line + lane();
    Unit v[N];
    bool wanted[N];
#pragma unroll
    for (int i = 0; i < N; i++) wanted[i] = line < linesOf(bytes[i]);
    loadLines<N>(L, in, line, wanted, v, flag, site);
#pragma unroll
    for (int i = 0; i < N; i++)
      if (lane() < LINE_UNITS && 16 * u < bytes[i]) storeUnit(out[i] + 16 * u, v[i], bytes[i] - 16 * u);
  }
}
// Every out = op over a plain operand, where there is one, and packets; the last SENT of them get it as packets.
template <class Op, int PLAIN, int IN, int OUT, int SENT = 0>
__device__ __forceinline__ void reducePackets(const Launch& L, const char* const (&in)[PLAIN + IN],
                                              char* const (&out)[OUT + SENT], i64 bytes, Wide scalar, u32 flag, Site site) {
  const i64 units = (bytes + 15) / 16, lines = linesOf(bytes);
#pragma unroll 1
  for (i64 first = position() / 32 * 4; first < lines; first += LINES_AT_ONCE) {
    const i64 line = first + lineOf() % 4, u = LINE_UNITS * line + lane();
    const bool wanted = line < lines, here = wanted && lane() < LINE_UNITS && u < units;
    Unit v[PLAIN + IN];
    const i64 left = bytes - 16 * u;
#pragma unroll
    for (int i = 0; i < PLAIN; i++)
      if (here) v[i] = loadUnit(in[i] + 16 * u, left);
    bool all[IN];
#pragma unroll
    for (int i = 0; i < IN; i++) all[i] = wanted;
    loadLines<IN>(L, in + PLAIN, line, all, v + PLAIN, flag, site);
    Unit result = flags(flag);
    if (here) {
      result = combineUnits<Op, PLAIN + IN>(v, scalar);
#pragma unroll
      for (int o = 0; o < OUT; o++) storeUnit(out[o] + 16 * u, result, left);
    }
    if (SENT > 0 && wanted) {
#pragma unroll
      for (int o = OUT; o < OUT + SENT; o++) storeLine(out[o] + 128 * line + 16 * lane(), result.words);
    }
  }
}
template <int OUT>
__device__ __forceinline__ void forward(const Launch& L, const char* in, char* const (&out)[OUT], i64 bytes, u32 flag,
                                        Site site) {
  const i64 lines = linesOf(bytes);
#pragma unroll 1
  for (i64 first = position() / 32 * 4; first < lines; first += LINES_AT_ONCE) {
    const i64 line = first + lineOf() % 4;
    const char* const from[] = {in};
    const bool wanted[] = {line < lines};
    Unit v[1];
    loadLines<1>(L, from, line, wanted, v, flag, site);
    if (line >= lines) continue;
#pragma unroll
    for (int o = 0; o < OUT; o++) storeLine(out[o] + 128 * line + 16 * lane(), v[0].words);
  }
}`;
