/**
 * The three binary interfaces of MPI for C. Open MPI's handles are addresses of objects that the library exports;
 * MPICH's (and those of Intel MPI, MVAPICH and Cray MPI, which follow it) are 32-bit integers; those of the MPI-5
 * standard are small constants as wide as a pointer.
 * Sources: mpi.h of Open MPI 4.1.4 and MPICH 4.0.2; the header of the MPI Forum's mpi-abi-stubs, 1.0.
 */
import type { NativeLibrary } from "../native/index.ts";

export type MpiAbiName = "Open MPI" | "MPICH" | "MPI-5";
/** Element types that every MPI has. */
export type MpiDType = "u8" | "u16" | "i8" | "i32" | "u32" | "i64" | "u64" | "f32" | "f64";
/** Operators that every MPI has for them. */
const OP_NAMES = ["sum", "prod", "min", "max", "band", "bor", "bxor"] as const;
export type MpiOpName = (typeof OP_NAMES)[number];

/** The handles that chorale uses, as numbers. */
export interface MpiHandles {
  readonly commWorld: number;
  readonly errorsReturn: number;
  readonly byte: number;
  readonly dtypes: Readonly<Record<MpiDType, number>>;
  readonly ops: Readonly<Record<MpiOpName, number>>;
}

export interface MpiAbi {
  readonly name: MpiAbiName;
  /** C type of a handle, as wide as it is in a call. */
  readonly handleType: "intptr_t" | "int";
  readonly handleBytes: 8 | 4;
  /** Given instead of the input of a collective that works in place. */
  readonly inPlace: number;
  /** Given instead of a status that nobody reads. */
  readonly statusIgnore: number;
  /** Receives from whoever has sent. */
  readonly anySource: number;
  /** MPI_THREAD_FUNNELED: only the thread that initialised MPI calls it. */
  readonly threadFunneled: number;
  /** Reads the handles; Open MPI's are looked up in the library. */
  handles(library: NativeLibrary): MpiHandles;
}

/** The symbol that Open MPI alone exports: `MPI_COMM_WORLD` is its address. */
export const OPEN_MPI_WORLD = "ompi_mpi_comm_world";

const OPEN_MPI_DTYPES: Readonly<Record<MpiDType, string>> = {
  u8: "uint8_t",
  i8: "int8_t",
  u16: "uint16_t",
  i32: "int32_t",
  u32: "uint32_t",
  i64: "int64_t",
  u64: "uint64_t",
  f32: "float",
  f64: "double",
};

const OPEN_MPI: MpiAbi = {
  name: "Open MPI",
  handleType: "intptr_t",
  handleBytes: 8,
  inPlace: 1,
  statusIgnore: 0,
  anySource: -1,
  threadFunneled: 1,
  handles(library) {
    const at = (symbol: string) => Number(library.address(symbol));
    const ops = OP_NAMES.map((name) => [name, at(`ompi_mpi_op_${name}`)]);
    const dtypes = Object.entries(OPEN_MPI_DTYPES).map(([dtype, name]) => [dtype, at(`ompi_mpi_${name}`)]);
    return {
      commWorld: at(OPEN_MPI_WORLD),
      errorsReturn: at("ompi_mpi_errors_return"),
      byte: at("ompi_mpi_byte"),
      dtypes: Object.fromEntries(dtypes) as Record<MpiDType, number>,
      ops: Object.fromEntries(ops) as Record<MpiOpName, number>,
    };
  },
};

const MPICH: MpiAbi = {
  name: "MPICH",
  handleType: "int",
  handleBytes: 4,
  inPlace: -1,
  statusIgnore: 1,
  anySource: -2,
  threadFunneled: 1,
  handles: () => ({
    commWorld: 0x44000000,
    errorsReturn: 0x54000001,
    byte: 0x4c00010d,
    dtypes: {
      i8: 0x4c000137,
      i32: 0x4c000439,
      i64: 0x4c00083a,
      u8: 0x4c00013b,
      u16: 0x4c00023c,
      u32: 0x4c00043d,
      u64: 0x4c00083e,
      f32: 0x4c00040a,
      f64: 0x4c00080b,
    },
    ops: {
      max: 0x58000001,
      min: 0x58000002,
      sum: 0x58000003,
      prod: 0x58000004,
      band: 0x58000006,
      bor: 0x58000008,
      bxor: 0x5800000a,
    },
  }),
};

const MPI_5: MpiAbi = {
  name: "MPI-5",
  handleType: "intptr_t",
  handleBytes: 8,
  inPlace: 1,
  statusIgnore: 0,
  anySource: -1,
  threadFunneled: 1024,
  handles: () => ({
    commWorld: 0x101,
    errorsReturn: 0x142,
    byte: 0x247,
    dtypes: {
      i8: 0x240,
      u8: 0x241,
      u16: 0x249,
      i32: 0x250,
      u32: 0x251,
      i64: 0x258,
      u64: 0x259,
      f32: 0x210,
      f64: 0x214,
    },
    ops: { sum: 0x21, min: 0x22, max: 0x23, prod: 0x24, band: 0x28, bor: 0x29, bxor: 0x2a },
  }),
};

export const MPI_ABIS: Readonly<Record<MpiAbiName, MpiAbi>> = { "Open MPI": OPEN_MPI, MPICH, "MPI-5": MPI_5 };

/**
 * Recognises a library's binary interface: by a symbol of Open MPI, by one that only the standard's library exports, and
 * otherwise by its version string.
 */
export function abiOf(library: Pick<NativeLibrary, "has">, versionText: string): MpiAbi {
  if (library.has(OPEN_MPI_WORLD)) return OPEN_MPI;
  // MPI_Abi_get_version came with MPI 5; libraries of the older interface may export it too, and say 0 through it.
  if (library.has("MPI_Abi_get_version") && !/MPICH|Intel|MVAPICH|CRAY/i.test(versionText)) return MPI_5;
  return MPICH;
}
