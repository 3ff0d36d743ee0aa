export type { AttachOptions, ThreadsHandle, ThreadsHostOptions } from "./handle.ts";
