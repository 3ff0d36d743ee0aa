/*
 * What an MPI library does with the sizes and ranks of `npm run bench:peers`: one sweep, one line of JSON per size on rank 0.
 *
 *   mpirun --bind-to core -n N openmpi-peer OP[,OP...] BYTES:ITERATIONS[:LOOPS] [BYTES:ITERATIONS[:LOOPS] ...]
 *
 * BYTES is the size nccl-tests prints (the larger of a rank's two buffers), f32 elements, sum. Out of place. The time
 * is the mean of a loop, averaged over the ranks; with LOOPS, the median of so many of them. Each size is checked by one call on known data before it is timed.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_RANKS 1024
#define MAX_LOOPS 100
static int rank, size, root = 0, parts[MAX_RANKS];

/* One call of the collective; `n` is the element count of the larger buffer. */
static void call(const char *op, float *in, float *out, long n) {
  int part = (int)(n / size), all = (int)n;
  for (int r = 0; r < size; r++) parts[r] = part;
  if (!strcmp(op, "all_reduce")) MPI_Allreduce(in, out, all, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (!strcmp(op, "broadcast")) MPI_Bcast(in, all, MPI_FLOAT, root, MPI_COMM_WORLD);
  else if (!strcmp(op, "reduce")) MPI_Reduce(in, out, all, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
  else if (!strcmp(op, "all_gather")) MPI_Allgather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  else if (!strcmp(op, "reduce_scatter"))
    /* Not _block: Open MPI 4.1 reduces that one in a line through one rank, eight times slower at 1 MiB. */
    MPI_Reduce_scatter(in, out, parts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  else if (!strcmp(op, "all_to_all")) MPI_Alltoall(in, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
  else if (!strcmp(op, "gather")) MPI_Gather(in, part, MPI_FLOAT, out, part, MPI_FLOAT, root, MPI_COMM_WORLD);
  else if (!strcmp(op, "scatter")) MPI_Scatter(in, part, MPI_FLOAT, out, part, MPI_FLOAT, root, MPI_COMM_WORLD);
  else if (!strcmp(op, "send"))
    MPI_Sendrecv(in, all, MPI_FLOAT, (rank + 1) % size, 0, out, all, MPI_FLOAT, (rank + size - 1) % size, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  else if (!strcmp(op, "barrier")) MPI_Barrier(MPI_COMM_WORLD);
  else {
    fprintf(stderr, "unknown operation %s\n", op);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
}

/* Input element i of a rank: small integers, so that sums are exact. */
static float value(int r, long i) { return (float)((i * 7 + r * 3) % 11); }

/* Number of wrong elements after one call on known data. */
static long check(const char *op, float *in, float *out, long n) {
  long part = n / size, wrong = 0;
  for (long i = 0; i < n; i++) in[i] = value(rank, i), out[i] = -1;
  call(op, in, out, n);
  int isRoot = rank == root;
  for (long i = 0; i < n; i++) {
    float sum = 0;
    for (int r = 0; r < size; r++) sum += value(r, i);
    if (!strcmp(op, "all_reduce") || (!strcmp(op, "reduce") && isRoot)) wrong += out[i] != sum;
    else if (!strcmp(op, "broadcast")) wrong += in[i] != value(root, i);
    else if (!strcmp(op, "send")) wrong += out[i] != value((rank + size - 1) % size, i);
    else if ((!strcmp(op, "all_gather") || (!strcmp(op, "gather") && isRoot)) && i < part * size)
      wrong += out[i] != value((int)(i / part), i % part);
    else if (!strcmp(op, "all_to_all") && i < part * size)
      wrong += out[i] != value((int)(i / part), rank * part + i % part);
    else if (!strcmp(op, "reduce_scatter") && i < part) {
      float own = 0;
      for (int r = 0; r < size; r++) own += value(r, rank * part + i);
      wrong += out[i] != own;
    } else if (!strcmp(op, "scatter") && i < part) wrong += out[i] != value(root, rank * part + i);
  }
  long total = 0;
  MPI_Allreduce(&wrong, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
  return total;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Checks and times one operation of one size, and prints it. Not 0: there is no memory. */
static int measure(const char *op, long bytes, long iterations, long loops) {
  long n = bytes / 4;
  float *in = NULL, *out = NULL;
  double times[MAX_LOOPS];
  if (posix_memalign((void **)&in, 4096, bytes) || posix_memalign((void **)&out, 4096, bytes)) return 1;
  long wrong = check(op, in, out, n);
  for (long i = 0; i < iterations / 10 + 2; i++) call(op, in, out, n);
  for (long loop = 0; loop < loops; loop++) {
    MPI_Barrier(MPI_COMM_WORLD);
    double began = MPI_Wtime();
    for (long i = 0; i < iterations; i++) call(op, in, out, n);
    double us = (MPI_Wtime() - began) * 1e6 / (double)iterations, mean = 0;
    MPI_Reduce(&us, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    times[loop] = mean / size;
  }
  if (rank == 0) {
    qsort(times, (size_t)loops, sizeof times[0], ascending);
    printf("{\"op\":\"%s\",\"sizeBytes\":%ld,\"timeUs\":%.4f,\"wrong\":%ld}\n", op, bytes, times[loops / 2], wrong);
    fflush(stdout);
  }
  free(in);
  free(out);
  return 0;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 3 || size > MAX_RANKS) {
    if (rank == 0) fprintf(stderr, "usage: openmpi-peer OP BYTES:ITERATIONS...; at most %d ranks\n", MAX_RANKS);
    MPI_Finalize();
    return 2;
  }
  char ops[1024];
  snprintf(ops, sizeof ops, "%s", argv[1]);
  for (char *op = strtok(ops, ","); op; op = strtok(NULL, ",")) {
    for (int a = 2; a < argc; a++) {
      long bytes = 0, iterations = 0, loops = 1;
      if (sscanf(argv[a], "%ld:%ld:%ld", &bytes, &iterations, &loops) < 2 || bytes < 4 || iterations < 1 || loops < 1 ||
          loops > MAX_LOOPS) {
        if (rank == 0) fprintf(stderr, "not BYTES:ITERATIONS[:LOOPS]: %s\n", argv[a]);
        MPI_Finalize();
        return 2;
      }
      if (measure(op, bytes, iterations, loops)) return 3;
    }
  }
  if (rank == 0) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    for (char *c = version; *c; c++)
      if (*c == '"' || *c == '\\' || *c == '\n' || *c == ',') { *c = 0; break; }
    printf("{\"engine\":\"%s\"}\n", version);
  }
  MPI_Finalize();
  return 0;
}
