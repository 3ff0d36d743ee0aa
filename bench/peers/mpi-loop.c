/*
 * All-reduces of f32 by MPI from C, back to back: `mpi-loop SIZES ROUNDS MS`, prints "bytes blocking_us iallreduce_us" for each
 * size, lower quartiles of the rounds (64 at most). MS is about how long the rounds of a size and kind take together.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return x < y ? -1 : x > y;
}

static double measure(float *in, float *out, int count, int calls, int blocking) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < calls; i++) {
    MPI_Request request;
    if (blocking) {
      MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else {
      MPI_Iallreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
      MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
  }
  return (MPI_Wtime() - start) / calls * 1e6;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int rank, rounds = atoi(argv[2]);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  double times[2][64];
  for (char *word = strtok(argv[1], ","); word != NULL; word = strtok(NULL, ",")) {
    long bytes = atol(word);
    float *in = malloc(bytes), *out = malloc(bytes);
    memset(in, 0, bytes);
    memset(out, 0, bytes);
    measure(in, out, bytes / 4, 3, 0);
    double us = measure(in, out, bytes / 4, 3, 0);
    for (int again = 0; again < 9; again++) {
      double one = measure(in, out, bytes / 4, 3, 0);
      if (one < us) us = one;
    }
    MPI_Bcast(&us, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int calls = (int)(atof(argv[3]) * 1000 / rounds / us);
    calls = calls < 1 ? 1 : calls > 1000 ? 1000 : calls;
    for (int round = 0; round < rounds; round++)
      for (int blocking = 0; blocking < 2; blocking++)
        times[blocking][round] = measure(in, out, bytes / 4, calls, blocking);
    for (int kind = 0; kind < 2; kind++) qsort(times[kind], rounds, sizeof(double), compare);
    if (rank == 0) printf("%ld %.3f %.3f\n", bytes, times[1][rounds / 4], times[0][rounds / 4]);
    free(in);
    free(out);
  }
  MPI_Finalize();
}
