/** Exit codes of the command line: done, a check failed, bad usage, the environment lacks something. */
export const EXIT = { done: 0, checkFailed: 1, usage: 2, environment: 3 } as const;
