/**
 * NCCL's C interface: prototypes, enums and status codes, as nccl.h has them. Everything newer than 2.14 is optional
 * and bound only when the library exports it. The enums are NCCL's own: their order is not ours (max before min).
 */
import { type DType, type NamedReduceOp, wordTable } from "../../core/index.ts";

/** Passed by value: 128 bytes that rank 0 draws and every rank must hold. */
export const UNIQUE_ID_BYTES = 128;
export const UNIQUE_ID_STRUCT = { name: "ChoraleNcclUniqueId", members: { internal: "uint8_t [128]" } } as const;

/** Present in every NCCL since 2.14, the oldest that chorale works with. */
export const NCCL_PROTOTYPES = {
  ncclGetVersion: "int ncclGetVersion(void *version)",
  ncclGetUniqueId: "int ncclGetUniqueId(void *id)",
  ncclCommInitRankConfig:
    "int ncclCommInitRankConfig(void *comm, int numRanks, ChoraleNcclUniqueId id, int rank, void *config)",
  ncclCommFinalize: "int ncclCommFinalize(void *comm)",
  ncclCommDestroy: "int ncclCommDestroy(void *comm)",
  ncclCommAbort: "int ncclCommAbort(void *comm)",
  ncclCommGetAsyncError: "int ncclCommGetAsyncError(void *comm, void *state)",
  ncclRedOpCreatePreMulSum:
    "int ncclRedOpCreatePreMulSum(void *op, void *scalar, int dtype, int residence, void *comm)",
  ncclRedOpDestroy: "int ncclRedOpDestroy(int op, void *comm)",
  ncclAllReduce:
    "int ncclAllReduce(uint64_t send, uint64_t recv, size_t count, int dtype, int op, void *comm, void *stream)",
  ncclReduce:
    "int ncclReduce(uint64_t send, uint64_t recv, size_t count, int dtype, int op, int root, void *comm, void *stream)",
  ncclBroadcast:
    "int ncclBroadcast(uint64_t send, uint64_t recv, size_t count, int dtype, int root, void *comm, void *stream)",
  ncclReduceScatter:
    "int ncclReduceScatter(uint64_t send, uint64_t recv, size_t recvCount, int dtype, int op, void *comm, void *stream)",
  ncclAllGather:
    "int ncclAllGather(uint64_t send, uint64_t recv, size_t sendCount, int dtype, void *comm, void *stream)",
  ncclSend: "int ncclSend(uint64_t send, size_t count, int dtype, int peer, void *comm, void *stream)",
  ncclRecv: "int ncclRecv(uint64_t recv, size_t count, int dtype, int peer, void *comm, void *stream)",
  ncclGroupStart: "int ncclGroupStart()",
  ncclGroupEnd: "int ncclGroupEnd()",
} as const;
export type NcclSymbol = keyof typeof NCCL_PROTOTYPES;

/** Newer symbols and the version that brought each. */
export const NCCL_OPTIONAL = {
  ncclCommSplit: {
    since: "2.18",
    prototype: "int ncclCommSplit(void *comm, int color, int key, void *out, void *config)",
  },
  ncclMemAlloc: { since: "2.19", prototype: "int ncclMemAlloc(void *pointer, size_t bytes)" },
  ncclMemFree: { since: "2.19", prototype: "int ncclMemFree(uint64_t pointer)" },
  ncclCommRegister: {
    since: "2.19",
    prototype: "int ncclCommRegister(void *comm, uint64_t buffer, size_t bytes, void *handle)",
  },
  ncclCommDeregister: { since: "2.19", prototype: "int ncclCommDeregister(void *comm, void *handle)" },
  ncclCommShrink: {
    since: "2.27",
    prototype: "int ncclCommShrink(void *comm, void *excluded, int numExcluded, void *out, void *config, int flags)",
  },
  ncclCommWindowRegister: {
    since: "2.27",
    prototype: "int ncclCommWindowRegister(void *comm, uint64_t buffer, size_t bytes, void *window, int flags)",
  },
  ncclCommWindowDeregister: { since: "2.27", prototype: "int ncclCommWindowDeregister(void *comm, void *window)" },
  ncclCommRevoke: { since: "2.28.7", prototype: "int ncclCommRevoke(void *comm, int flags)" },
  ncclCommGrow: {
    since: "2.29.2",
    prototype: "int ncclCommGrow(void *comm, int numRanks, void *id, int rank, void *out, void *config)",
  },
  ncclAlltoAll: {
    since: "2.28.3",
    prototype: "int ncclAlltoAll(uint64_t send, uint64_t recv, size_t count, int dtype, void *comm, void *stream)",
  },
  ncclGather: {
    since: "2.28.3",
    prototype:
      "int ncclGather(uint64_t send, uint64_t recv, size_t count, int dtype, int root, void *comm, void *stream)",
  },
  ncclScatter: {
    since: "2.28.3",
    prototype:
      "int ncclScatter(uint64_t send, uint64_t recv, size_t count, int dtype, int root, void *comm, void *stream)",
  },
} as const;
export type NcclOptionalSymbol = keyof typeof NCCL_OPTIONAL;

/** Functions that return text. */
export const NCCL_TEXT_PROTOTYPES = {
  ncclGetErrorString: "const char *ncclGetErrorString(int result)",
  ncclGetLastError: "const char *ncclGetLastError(void *comm)",
} as const;

/** ncclResult_t. 8 is Timeout from 2.30.3 and means nothing before. */
export const NCCL_RESULT = {
  success: 0,
  unhandledCudaError: 1,
  systemError: 2,
  internalError: 3,
  invalidArgument: 4,
  invalidUsage: 5,
  remoteError: 6,
  inProgress: 7,
  timeout: 8,
} as const;

/** ncclDataType_t */
export const NCCL_DTYPE: { readonly [D in DType]: number } = {
  i8: 0,
  u8: 1,
  i32: 2,
  u32: 3,
  i64: 4,
  u64: 5,
  f16: 6,
  f32: 7,
  f64: 8,
  bf16: 9,
  f8e4m3: 10,
  f8e5m2: 11,
};

/** ncclRedOp_t. Bitwise operators do not exist there. Operators made at run time are opaque numbers from 5 up. */
export const NCCL_REDOP: { readonly [O in NamedReduceOp]?: number } = wordTable({
  sum: 0,
  prod: 1,
  max: 2,
  min: 3,
  avg: 4,
});

/** The scalar of a PreMulSum operator is host memory that NCCL copies before the call returns. */
export const SCALAR_HOST_IMMEDIATE = 1;

/** ncclCommSplit's "no group for me". */
export const SPLIT_NO_COLOR = -1;
