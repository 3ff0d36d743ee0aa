import { describe, expect, it } from "vitest";
import { FormatError, printable, printableInColour, printableJson, printableLine, show } from "./index.ts";

/** What no terminal may get: all of C0 but tab and line feed, DEL, C1, direction marks. */
const FORBIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

describe("text for a terminal", () => {
  it("shows every control character and direction mark as the escape that names it, and loses nothing", () => {
    const wrong: { code: number; shown: string[] }[] = [];
    for (let code = 0; code < 0x2100; code++) {
      const text = `a${String.fromCharCode(code)}b`;
      const shown = [printable(text), printableLine(text), printableInColour(text), printableJson(text)];
      const isRight = shown.every((one) => !FORBIDDEN.test(one) && /^"?a.+b"?$/s.test(one));
      if (!isRight || JSON.parse(printableJson(text)) !== text) wrong.push({ code, shown });
    }
    expect(wrong).toEqual([]);
  });

  it("leaves text of all languages, tabs and line ends as they are", () => {
    const text = "Grüße\t日本語 עברית 🚀\nend";
    expect([printable(text), printableInColour(text), JSON.parse(printableJson(text))]).toEqual([text, text, text]);
    expect(printable("a\r\nb")).toBe("a\nb");
    expect(printableLine("a\nb\tc")).toBe("a\\nb\\tc");
  });

  it("lets colours through where the program colours, and no other escape", () => {
    expect(printableInColour("\u001b[1mbold\u001b[0m\u001b[2J\u001b]0;title\u0007")).toBe(
      "\u001b[1mbold\u001b[0m\\x1b[2J\\x1b]0;title\\x07",
    );
  });

  it("escapes tags beyond the first plane as pairs in JSON", () => {
    expect(printable("\u{e0041}")).toBe("\\u{e0041}");
    expect(printableJson("\u{e0041}")).toBe('"\\udb40\\udc41"');
  });

  it("is what errors are made of: messages hold no escape, whatever a file said", () => {
    const hostile = "\u001b]0;pwned\u0007\u202egnp\u009b2J\rno error";
    const error = new FormatError(hostile, `Unrecognized key: "${hostile}"`, { field: `a\n${hostile}` });
    expect(error.message).not.toMatch(FORBIDDEN);
    expect(error.message).not.toContain("\n");
    expect(error.where).toBe(hostile); // data stays data
    expect(show(hostile)).not.toMatch(FORBIDDEN);
  });
});
