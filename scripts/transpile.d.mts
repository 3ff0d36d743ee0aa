export function transpileSources(): Promise<string>;
