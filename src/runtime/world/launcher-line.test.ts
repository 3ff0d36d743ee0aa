import { describe, expect, it } from "vitest";
import { taggedPieces } from "./launcher-line.ts";

describe("what an engine's launcher passes on", () => {
  it("is whose the tag says, on the stream that it says", () => {
    expect(taggedPieces("[1,12]<stderr>:no [1] here")).toEqual([
      { rank: 12, stream: "stderr", text: "no [1] here", isEnd: true },
    ]);
    expect(taggedPieces("[3] a: b")).toEqual([{ rank: 3, stream: undefined, text: "a: b", isEnd: true }]);
    expect(taggedPieces("mpirun noticed that [1,0]<stdout>: was killed")).toEqual([]);
  });

  it("is a long line's pieces, with those of others between", () => {
    expect(taggedPieces("[1,0]<stdout>:aaaa[1,1]<stdout>:other")).toEqual([
      { rank: 0, stream: "stdout", text: "aaaa", isEnd: false },
      { rank: 1, stream: "stdout", text: "other", isEnd: true },
    ]);
    expect(taggedPieces("[1,0]<stdout>:aaaa[1,0]<stdout>:bb")).toEqual([
      { rank: 0, stream: "stdout", text: "aaaa", isEnd: false },
      { rank: 0, stream: "stdout", text: "bb", isEnd: true },
    ]);
  });
});
