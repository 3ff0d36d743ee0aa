/** This machine's document of choices, for launchers: they read it once for a world and hand it to the ranks. */
import { machineFile, readUsedMachineFile } from "../../machine/cost/index.ts";
import type { OptionCheck } from "../comm/index.ts";
import { type ChoiceDocument, checkChoices } from "./choices.ts";

/** Checks what a backend's option `choices` says: one of some words, or a document. */
export function isChoices(words: readonly string[]): OptionCheck {
  return (value) => {
    if (words.some((word) => word === value)) return undefined;
    try {
      checkChoices(value, "backendOptions");
      return undefined;
    } catch (error) {
      const accepted = words.map((word) => JSON.stringify(word)).join(", ");
      return `${accepted}, or a document of choices (${(error as Error).message})`;
    }
  };
}

/**
 * Reads what `chorale tune` stored for this machine; `undefined` when there is nothing, and with `CHORALE_CHOICES=shipped`.
 * @throws FormatError for a broken file, naming the field; InvalidArgumentError when `CHORALE_CHOICES` names a file that is not there, or another machine's
 */
export function machineChoices(path: string | undefined = machineFile()): ChoiceDocument | undefined {
  if (path === undefined) return undefined;
  const data = readUsedMachineFile(path)?.choices?.data;
  return data === undefined ? undefined : checkChoices(data, path);
}
