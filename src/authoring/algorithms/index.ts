/** The library of collective algorithms, each a short program of the language with its source cited. */
export * from "./all-pairs.ts";
export type { AlgorithmArgs, HierarchicalArgs, RootedArgs } from "./args.ts";
export * from "./bruck.ts";
export * from "./hierarchical.ts";
export * from "./library.ts";
export * from "./mscclpp.ts";
export * from "./point.ts";
export * from "./recursive.ts";
export * from "./ring.ts";
export * from "./switch.ts";
export * from "./tree.ts";
