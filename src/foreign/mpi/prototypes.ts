/**
 * The functions of MPI that chorale calls (MPI 3.1, chapters 3, 5, 6 and 8). `H` stands for a handle, `H*` for the address
 * of one; buffers, addresses and lists are given as numbers, so that a call costs no conversion.
 */
export const MPI_PROTOTYPES = {
  MPI_Init_thread: "int f(A argc, A argv, int required, A provided)",
  MPI_Initialized: "int f(A flag)",
  MPI_Finalized: "int f(A flag)",
  MPI_Finalize: "int f()",
  MPI_Abort: "int f(H comm, int code)",
  MPI_Get_version: "int f(A version, A subversion)",
  MPI_Error_string: "int f(int code, A text, A length)",
  MPI_Comm_rank: "int f(H comm, A rank)",
  MPI_Comm_size: "int f(H comm, A size)",
  MPI_Comm_dup: "int f(H comm, A out)",
  MPI_Comm_group: "int f(H comm, A out)",
  MPI_Comm_create_group: "int f(H comm, H group, int tag, A out)",
  MPI_Comm_free: "int f(A comm)",
  MPI_Comm_set_errhandler: "int f(H comm, H handler)",
  MPI_Group_incl: "int f(H group, int n, A ranks, A out)",
  MPI_Group_free: "int f(A group)",
  MPI_Test: "int f(A request, A flag, A status)",
  MPI_Iprobe: "int f(int from, int tag, H comm, A flag, A status)",
  MPI_Recv: "int f(A buffer, int count, H dtype, int from, int tag, H comm, A status)",
  MPI_Isend: "int f(A buffer, int count, H dtype, int to, int tag, H comm, A request)",
  MPI_Irecv: "int f(A buffer, int count, H dtype, int from, int tag, H comm, A request)",
  MPI_Ibarrier: "int f(H comm, A request)",
  MPI_Ibcast: "int f(A buffer, int count, H dtype, int root, H comm, A request)",
  MPI_Iallreduce: "int f(A send, A recv, int count, H dtype, H op, H comm, A request)",
  MPI_Ireduce: "int f(A send, A recv, int count, H dtype, H op, int root, H comm, A request)",
  MPI_Ireduce_scatter_block: "int f(A send, A recv, int count, H dtype, H op, H comm, A request)",
  MPI_Ireduce_scatter: "int f(A send, A recv, A counts, H dtype, H op, H comm, A request)",
  MPI_Iallgather: "int f(A send, int n, H dtype, A recv, int m, H rdtype, H comm, A request)",
  MPI_Iallgatherv: "int f(A send, int n, H dtype, A recv, A counts, A offsets, H rdtype, H comm, A request)",
  MPI_Ialltoall: "int f(A send, int n, H dtype, A recv, int m, H rdtype, H comm, A request)",
  MPI_Ialltoallv:
    "int f(A send, A counts, A offsets, H dtype, A recv, A rcounts, A roffsets, H rdtype, H comm, A request)",
  MPI_Igather: "int f(A send, int n, H dtype, A recv, int m, H rdtype, int root, H comm, A request)",
  MPI_Igatherv: "int f(A send, int n, H dtype, A recv, A counts, A offsets, H rdtype, int root, H comm, A request)",
  MPI_Iscatter: "int f(A send, int n, H dtype, A recv, int m, H rdtype, int root, H comm, A request)",
} as const;
export type MpiSymbol = keyof typeof MPI_PROTOTYPES;

/** Symbols that show whether a library can do more than MPI 3.1 requires. */
export const MPI_ABILITIES = {
  largeCounts: "MPI_Allreduce_c",
  persistentCollectives: "MPI_Allreduce_init",
  sessions: "MPI_Session_init",
} as const;
