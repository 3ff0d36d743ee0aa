/**
 * Compile errors that read as sentences. A parameter of type `X & Sentence<"…">` refuses every argument, and TypeScript
 * prints the sentence; a property of type `Sentence<"…">` stands where other objects have a method, and calling it
 * prints why there is none. Idea: kysely's `KyselyTypeError`.
 */
import type { BufferKind } from "../plan/index.ts";

declare const because: unique symbol;
export interface Sentence<Why extends string> {
  readonly [because]: Why;
}

/** Nothing for scratch; for other buffers the sentence. */
export type OnlyScratch<B extends BufferKind, Why extends string> = [B] extends ["scratch"] ? unknown : Sentence<Why>;

export type OneStrand = "a synchronising operation is done by one strand: it takes no strand group";
