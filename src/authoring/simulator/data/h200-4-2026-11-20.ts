/**
 * Measured on one host with 4x NVIDIA H200 (143,771 MiB), all pairs NV18 (18 links of 26.562 GB/s, 478 GB/s a direction
 * and GPU), driver 580.159, CUDA 13.0, 2026-11-20. f32 all-reduce, one process, graphs of 20 calls replayed, no NVLink
 * multicast. Microseconds per call. Busbw of the last rows follows nccl-tests.
 */
export const H200_4 = {
  date: "2026-11-20",
  hardware: "4x NVIDIA H200, NV18, driver 580.159, CUDA 13.0, NCCL 2.28.3",
  sizesBytes: [2 ** 10, 2 ** 12, 2 ** 14, 2 ** 16, 2 ** 18, 2 ** 20, 2 ** 22, 2 ** 24, 2 ** 26, 2 ** 28],
  /** NCCL 2.28.3 beside the two prototypes, all three in one program. */
  ncclAllReduceUs: [12.82, 13.15, 13.89, 13.66, 13.68, 19.62, 41.88, 101.3, 320.7, 1183],
  /** nccl-tests itself (`-t 4 -g 1 -n 20 -w 5 -G 3`), out of place. */
  ncclTestsAllReduceUs: [12.2, 9.6, 10.6, 10.9, 11.4, 19.1, 41.6, 101, 316, 1173],
  /** Every rank writes its input to every peer's scratch as 16-byte packets, waits for its own, and sums. */
  oneShotPacketsUs: [3.0, 3.53, 3.7, 4.8, 8.37, 25.1],
  /** Barrier, pull a quarter from every peer, sum, push to every peer, barrier; unrolled 4 times from 16 MiB on. */
  twoShotUs: [6.95, 6.99, 7.26, 7.65, 8.12, 10.54, 24.57, 64.5, 290.5, 1216],
  /** nccl-tests, out of place. */
  ncclTestsAllGatherUs: [9.4, 7.2, 8.4, 8.6, 8.9, 13.1, 35.7, 60.0, 169, 596],
  ncclTestsReduceScatterUs: [7.1, 7.2, 7.8, 8.0, 8.3, 11.4, 34.6, 61.1, 186, 660],
  ncclTestsAllToAllUs: [6.7, 6.8, 7.4, 8.2, 8.7, 14.0, 24.1, 53.2, 191, 712],
} as const;
