export const greeting = (rank: number): string => `hello from ${rank}`;

export function boom(rank: number): never {
  const why: string = `boom on ${rank}`;
  throw new TypeError(why, { cause: new Error("the root") });
}
