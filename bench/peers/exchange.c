/*
 * Two threads on cores of their own send each other 64 bytes, again and again, and add them: the steps of a small all-reduce of
 * the threads backend, without the rest of a call.
 *
 *   gcc -O2 -pthread -o exchange bench/peers/exchange.c && ./exchange WINDOWS WORK
 *
 * WORK: rounds of eight independent additions between two exchanges. As bench/slowed-cores.mjs does, each thread times such
 * additions before and after a window of 600 exchanges; one line says, for 0, 1 and 2 slowed cores, the number of windows, and
 * the tenth part and the median of microseconds per exchange.
 */
#define _GNU_SOURCE
#include <emmintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define EXCHANGES 600
#define PROBE 12000
/* Messages of a thread lie in two boxes by turns; those of two threads share no page. */
#define BOX 4352
#define BOXES 65536
#define DATA 16
#define KEEP __asm__ volatile("" ::: "memory")

static char memory[2 * BOXES] __attribute__((aligned(4096)));
static int windows, work;
static double *times[2], *probes[2];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void add(int rounds) {
  uint64_t a = 1, b = 2, c = 3, d = 4;
  for (int i = 0; i < rounds; i++)
    __asm__ volatile("add $1,%0\nadd $1,%1\nadd $1,%2\nadd $1,%3\nadd $3,%0\nadd $3,%1\nadd $3,%2\nadd $3,%3"
                     : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
}

static void exchange(char *out, const volatile char *in, uint64_t number, const float *own, float *sum) {
  for (int k = 3; k >= 0; k--) {
    _mm_storeu_ps((float *)(out + DATA + 16 * k), _mm_loadu_ps(own + 4 * k));
    KEEP;
  }
  *(volatile uint64_t *)out = number;
  while (*(const volatile uint64_t *)in != number) (void)*(const volatile uint64_t *)(in + DATA + 56);
  KEEP;
  for (int k = 0; k < 4; k++)
    _mm_storeu_ps(sum + 4 * k, _mm_add_ps(_mm_loadu_ps(own + 4 * k), _mm_loadu_ps((const float *)(in + DATA + 16 * k))));
}

static void *run(void *argument) {
  long me = (long)argument;
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(me, &cores);
  pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
  char *out = memory + me * BOXES;
  const volatile char *in = memory + (1 - me) * BOXES;
  float own[16], sum[16];
  for (int i = 0; i < 16; i++) own[i] = 1;
  uint64_t number = 0;
  for (int window = 0;; window++) {
    double began = now();
    add(PROBE);
    probes[me][window] = now() - began;
    if (window == windows) return NULL;
    for (int i = -50; i < EXCHANGES; i++) {
      if (i == 0) began = now();
      number++;
      exchange(out + (number & 1) * BOX, in + (number & 1) * BOX, number, own, sum);
      add(work);
    }
    times[me][window] = (now() - began) / EXCHANGES;
  }
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

int main(int argc, char **argv) {
  if (argc < 3 || (windows = atoi(argv[1])) < 1 || (work = atoi(argv[2])) < 0) {
    fprintf(stderr, "usage: exchange WINDOWS WORK\n");
    return 2;
  }
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    times[i] = calloc((size_t)windows, sizeof(double));
    probes[i] = calloc((size_t)windows + 1, sizeof(double));
  }
  for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, run, (void *)i);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  double least = 1e9, *sorted[3];
  int count[3] = {0, 0, 0};
  for (int i = 0; i < 3; i++) sorted[i] = calloc((size_t)windows, sizeof(double));
  for (int i = 0; i < 2; i++)
    for (int w = 0; w <= windows; w++)
      if (probes[i][w] < least) least = probes[i][w];
  for (int w = 0; w < windows; w++) {
    int slowed = 0, own = 0;
    for (int i = 0; i < 2; i++) {
      double before = probes[i][w] / least, after = probes[i][w + 1] / least;
      slowed += before > 1.2 && after > 1.2;
      own += before < 1.06 && after < 1.06;
    }
    if (slowed + own == 2) sorted[slowed][count[slowed]++] = times[0][w] > times[1][w] ? times[0][w] : times[1][w];
  }
  for (int i = 0; i < 3; i++) {
    qsort(sorted[i], (size_t)count[i], sizeof(double), ascending);
    printf("%d: %d", i, count[i]);
    if (count[i] > 0) printf(" %.3f %.3f", sorted[i][count[i] / 10], sorted[i][count[i] / 2]);
    printf(i < 2 ? " | " : "\n");
  }
  return 0;
}
