/** What the doctor says. */
export type Severity = "error" | "warning" | "info";

/** Every code that a finding can have. docs/doctor.md says what each one means. */
export const DOCTOR_CODES = [
  "ACS_REDIRECTS",
  "COMPUTE_EXCLUSIVE",
  "COMPUTE_PROHIBITED",
  "CUDA_INIT_FAILED",
  "CUDA_SEES_NO_DEVICE",
  "DETECTION_WARNING",
  "DEVICE_PASSED_THROUGH",
  "DEVICE_WITHOUT_DRIVER",
  "DRIVER_LIBRARY_MISMATCH",
  "DRIVER_UNREACHABLE",
  "DRIVER_WITHOUT_DEVICE",
  "ECC_ERRORS",
  "FABRIC_NOT_READY",
  "FORWARD_COMPATIBILITY_REFUSED",
  "GPU_LOST",
  "INACTIVE_LINKS",
  "INFOROM_CORRUPT",
  "IOMMU_TRANSLATES",
  "IPC_UNUSABLE",
  "LINKS_DOWN",
  "MASKED_DEVICES",
  "MASK_REPEATS",
  "MEMLOCK_LOW",
  "MIG_ENABLED",
  "MPI_MIXED",
  "NCCL_INTERFACE",
  "NCCL_NEWER_THAN_DRIVER",
  "NCCL_SYMBOLS_MISSING",
  "NCCL_TOO_OLD",
  "NCCL_VARIABLE",
  "NODE_END_OF_LIFE",
  "NODE_UNSUPPORTED",
  "NO_FFI",
  "NO_PEER_ACCESS",
  "NO_PERMISSION",
  "NVSWITCH_DOWN",
  "PCIE_NARROW",
  "PERSISTENCE_OFF",
  "PORT_DOWN",
  "RUNTIME_NEWER_THAN_DRIVER",
  "SHM_FULL",
  "SHM_SMALL",
  "TOOL_TROUBLE",
  "TWO_RANKS_ON_ONE_GPU",
  "XID_ERRORS",
] as const;
export type DoctorCode = (typeof DOCTOR_CODES)[number];

export interface Finding {
  readonly code: DoctorCode;
  readonly severity: Severity;
  /** What is wrong. */
  readonly message: string;
  /** Where that was seen: lines of files, answers of libraries, variables. */
  readonly evidence?: readonly string[];
  /** What to do about it. */
  readonly mend: string;
}
