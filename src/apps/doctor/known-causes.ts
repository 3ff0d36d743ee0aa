/** What the error texts of CUDA and NCCL mean, for failures that a flight-recorder dump holds. */

const CAUSES: readonly (readonly [RegExp, string])[] = [
  [
    /Duplicate GPU detected/i,
    "Two ranks of one communicator are on one GPU: start one rank per GPU, and look at CUDA_VISIBLE_DEVICES of each rank.",
  ],
  [
    /Driver\/library version mismatch|SYSTEM_DRIVER_MISMATCH/i,
    "The driver was updated while it ran: reboot, or unload and load the nvidia modules.",
  ],
  [
    /driver version is insufficient|INSUFFICIENT_DRIVER|UNSUPPORTED_PTX_VERSION/i,
    "A library was built for a newer CUDA than the driver runs: update the driver, or install the library of the driver's CUDA.",
  ],
  [
    /No space left on device.*shm|shm.*No space left on device|creating shared memory segment/is,
    "/dev/shm is too small or full: --shm-size=1g for a container, and remove nccl-* that dead runs left there.",
  ],
  [
    /all CUDA-capable devices are busy|DEVICE_UNAVAILABLE|devices? (is|are) busy or unavailable/i,
    "The GPU is in exclusive mode and another process has it: nvidia-smi -c DEFAULT, or end that process.",
  ],
  [
    /illegal address|ILLEGAL_ADDRESS|MISALIGNED_ADDRESS|LAUNCH_FAILED/i,
    "A kernel touched memory that is not its own; the context is lost. End the process; compute-sanitizer finds the kernel.",
  ],
  [
    /fallen off the bus|GPU_IS_LOST|ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE/i,
    "The GPU or its link failed: look at dmesg for Xid lines, drain it and reset or replace it.",
  ],
  [
    /unhandled system error/i,
    "NCCL could not use the system's network, shared memory or limits: NCCL_DEBUG=WARN prints which; chorale doctor checks /dev/shm and memlock.",
  ],
];

/**
 * Says what an error text of CUDA or NCCL means and what to do, where it is a known one.
 * @example
 * knownCause("ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000")
 */
export function knownCause(text: string): string | undefined {
  return CAUSES.find(([pattern]) => pattern.test(text))?.[1];
}
