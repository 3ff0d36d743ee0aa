/**
 * The part of a generated kernel that moves packets as sheets of lines, for large messages: 120 bytes of a line are data, where
 * lines one by one have 112. What `prelude.ts` says of positions holds for sheets too.
 */

/** Bytes of data in a sheet of eight lines, which a warp moves at a time, and bytes that it takes. */
export const SHEET = { dataBytes: 960, bytes: 1024 } as const;

/** Lines of 128 bytes: 120 of data and 8 of flags. A warp that has fewer than eight of them takes longer than by lines one by one. */
export const SHEETS = `// Packets as lines of 128 bytes: eight threads of a warp, of which the last carries 8 bytes of data and the launch's number.
// One store of a warp arrives as whole lines over NVLink, and one load sees whole lines: NCCL's LL128 rests on the same.
// A warp moves a sheet of eight lines at a time, in two rows of four. Its units are first those of the 32 threads, then one
// more of each thread but the last of a line, whose one unit is shared by the two rows: half in a line of either.
constexpr int SHEET_UNITS = ${SHEET.dataBytes / 16}, SHEET_BYTES = ${SHEET.bytes};
constexpr int SHEETS_AT_ONCE = STRIDE / 32;
__device__ __forceinline__ int lane() { return threadIdx.x & 31; }
__device__ __forceinline__ bool endsLine() { return (lane() & 7) == 7; }
__device__ __forceinline__ i64 sheetsOf(i64 bytes) {
  return bytes <= 0 ? 0 : ((u32)((u64)(bytes + 15) >> 4) + SHEET_UNITS - 1) / SHEET_UNITS;
}
// Where this thread's unit of a row is, in bytes of data.
__device__ __forceinline__ i64 unitAt(i64 sheet, int row) {
  return 16 * (SHEET_UNITS * sheet + (row == 0 ? lane() : 32 + lane() - lane() / 8));
}
__device__ __forceinline__ bool hasUnit(i64 sheet, int row, i64 bytes) {
  return (row == 0 || !endsLine()) && unitAt(sheet, row) < bytes;
}
// Whether there is data for this thread's line of a row: in the second one, at least of the unit that the rows share.
__device__ __forceinline__ bool hasLine(i64 sheet, int row, i64 bytes) {
  return 16 * (SHEET_UNITS * sheet + (lane() & 24) + 7 * row) < bytes;
}
__device__ __forceinline__ Unit loadOfSheet(const char* in, i64 sheet, int row, i64 bytes) {
  Unit v;
  v.words.x = v.words.y = v.words.z = v.words.w = 0;
  const i64 at = unitAt(sheet, row);
  return hasUnit(sheet, row, bytes) ? loadUnit(in + at, bytes - at) : v;
}
__device__ __forceinline__ void storeOfSheet(char* out, Unit v, i64 sheet, int row, i64 bytes) {
  const i64 at = unitAt(sheet, row);
  if (hasUnit(sheet, row, bytes)) storeUnit(out + at, v, bytes - at);
}
// Stores this thread's share of a sheet as lines.
template <int OUT>
__device__ __forceinline__ void storeSheet(char* const* out, Unit first, Unit second, i64 sheet, i64 bytes, u32 flag) {
  if (endsLine()) {
    second.word[0] = first.word[2]; second.word[1] = first.word[3];
    first.word[2] = first.word[3] = second.word[2] = second.word[3] = flag;
  }
#pragma unroll
  for (int o = 0; o < OUT; o++) {
    char* const at = out[o] + SHEET_BYTES * sheet + 16 * lane();
    if (hasLine(sheet, 0, bytes)) storeLine(at, first.words);
    if (hasLine(sheet, 1, bytes)) storeLine(at + 512, second.words);
  }
}
// Waits for a sheet of each operand. Where there is no line, nothing is waited for.
template <int IN, int ALL = IN>
__device__ __forceinline__ void loadSheets(const Launch& L, const char* const* in, i64 sheet, const i64 (&bytes)[IN],
                                           Unit (&first)[ALL], Unit (&second)[ALL], u32 flag, Site site) {
  constexpr int PLAIN = ALL - IN;
  Patience patience;
  for (;;) {
    bool ready = true;
#pragma unroll
    for (int i = 0; i < IN; i++) {
      const char* const at = in[i] + SHEET_BYTES * sheet + 16 * lane();
      first[PLAIN + i].words = loadOfLine(hasLine(sheet, 0, bytes[i]) ? at : nullptr);
      second[PLAIN + i].words = loadOfLine(hasLine(sheet, 1, bytes[i]) ? at + 512 : nullptr);
    }
    if (endsLine()) {
#pragma unroll
      for (int i = 0; i < IN; i++) {
        const Unit &low = first[PLAIN + i], &high = second[PLAIN + i];
        ready = ready && (!hasLine(sheet, 0, bytes[i]) || (low.word[2] == flag && low.word[3] == flag));
        ready = ready && (!hasLine(sheet, 1, bytes[i]) || (high.word[2] == flag && high.word[3] == flag));
      }
    }
    if (allOfWarp(ready)) break;
    const bool over = patience.isOver(L, site, first[PLAIN].word[3], flag);
    if (allOfWarp(over || ready)) break;
  }
  if (!endsLine()) return;
#pragma unroll
  for (int i = PLAIN; i < ALL; i++) {
    first[i].word[2] = second[i].word[0];
    first[i].word[3] = second[i].word[1];
  }
}
template <int N> __device__ __forceinline__ i64 mostSheets(const i64 (&bytes)[N]) {
  i64 sheets = 0;
#pragma unroll
  for (int i = 0; i < N; i++) sheets = most(sheets, sheetsOf(bytes[i]));
  return sheets;
}

template <int OUT>
__device__ __forceinline__ void pack(const char* in, char* const (&out)[OUT], i64 bytes, u32 flag) {
  const i64 sheets = sheetsOf(bytes);
#pragma unroll 1
  for (i64 sheet = position() / 32; sheet < sheets; sheet += SHEETS_AT_ONCE) {
    const Unit first = loadOfSheet(in, sheet, 0, bytes), second = loadOfSheet(in, sheet, 1, bytes);
    storeSheet<OUT>(out, first, second, sheet, bytes, flag);
  }
}
// As pack and unpack, of several at once.
template <int N>
__device__ __forceinline__ void packEach(const char* const (&in)[N], char* const (&out)[N], const i64 (&bytes)[N], u32 flag) {
  const i64 sheets = mostSheets<N>(bytes);
#pragma unroll 1
  for (i64 sheet = position() / 32; sheet < sheets; sheet += SHEETS_AT_ONCE) {
    Unit first[N], second[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      first[i] = loadOfSheet(in[i], sheet, 0, bytes[i]);
      second[i] = loadOfSheet(in[i], sheet, 1, bytes[i]);
    }
#pragma unroll
    for (int i = 0; i < N; i++) storeSheet<1>(out + i, first[i], second[i], sheet, bytes[i], flag);
  }
}
template <int N>
__device__ __forceinline__ void unpackEach(const Launch& L, const char* const (&in)[N], char* const (&out)[N],
                                           const i64 (&bytes)[N], u32 flag, Site site) {
  const i64 sheets = mostSheets<N>(bytes);
#pragma unroll 1
  for (i64 sheet = position() / 32; sheet < sheets; sheet += SHEETS_AT_ONCE) {
    Unit first[N], second[N];
    loadSheets<N>(L, in, sheet, bytes, first, second, flag, site);
#pragma unroll
    for (int i = 0; i < N; i++) {
      storeOfSheet(out[i], first[i], sheet, 0, bytes[i]);
      storeOfSheet(out[i], second[i], sheet, 1, bytes[i]);
    }
  }
}
// Every out = op over a plain operand, where there is one, and packets; the last SENT of them get it as packets.
template <class Op, int PLAIN, int IN, int OUT, int SENT = 0>
__device__ __forceinline__ void reducePackets(const Launch& L, const char* const (&in)[PLAIN + IN],
                                              char* const (&out)[OUT + SENT], i64 bytes, Wide scalar, u32 flag, Site site) {
  const i64 sheets = sheetsOf(bytes);
  i64 all[IN];
#pragma unroll
  for (int i = 0; i < IN; i++) all[i] = bytes;
#pragma unroll 1
  for (i64 sheet = position() / 32; sheet < sheets; sheet += SHEETS_AT_ONCE) {
    Unit first[PLAIN + IN], second[PLAIN + IN];
#pragma unroll
    for (int i = 0; i < PLAIN; i++) {
      first[i] = loadOfSheet(in[i], sheet, 0, bytes);
      second[i] = loadOfSheet(in[i], sheet, 1, bytes);
    }
    loadSheets<IN, PLAIN + IN>(L, in + PLAIN, sheet, all, first, second, flag, site);
    const Unit low = combineUnits<Op, PLAIN + IN>(first, scalar), high = combineUnits<Op, PLAIN + IN>(second, scalar);
    if constexpr (SENT > 0) storeSheet<SENT>(out + OUT, low, high, sheet, bytes, flag);
#pragma unroll
    for (int o = 0; o < OUT; o++) {
      storeOfSheet(out[o], low, sheet, 0, bytes);
      storeOfSheet(out[o], high, sheet, 1, bytes);
    }
  }
}
template <int OUT>
__device__ __forceinline__ void forward(const Launch& L, const char* in, char* const (&out)[OUT], i64 bytes, u32 flag,
                                        Site site) {
  const i64 sheets = sheetsOf(bytes);
  const char* const from[] = {in};
  const i64 all[] = {bytes};
#pragma unroll 1
  for (i64 sheet = position() / 32; sheet < sheets; sheet += SHEETS_AT_ONCE) {
    Unit first[1], second[1];
    loadSheets<1>(L, from, sheet, all, first, second, flag, site);
    storeSheet<OUT>(out, first[0], second[0], sheet, bytes, flag);
  }
}`;
