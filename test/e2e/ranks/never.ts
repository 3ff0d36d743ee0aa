/** Its top-level await never ends. */
await new Promise(() => {});

export {};
