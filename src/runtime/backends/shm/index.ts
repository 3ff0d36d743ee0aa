/**
 * Collectives of processes of one host, over memory that they have mapped: the threads backend, whose ranks are processes.
 * Refuses several hosts, systems that cannot map a file over memory, and more than 4 GiB.
 * Start with shm-kind.ts (outside), shm-world.ts (the memory), then the threads backend, which does all the rest.
 */
export type { ShmOptions } from "./shm-handle.ts";
