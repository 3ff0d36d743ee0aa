/** `chorale check --certificate`: proves that a schedule is the fastest there can be, or says what does not hold. */
import { checkCertificate } from "../../authoring/certificate/index.ts";
import { readJsonFile } from "../../foreign/formats/index.ts";
import { describeLack, EXIT } from "./exit-codes.ts";
import { print, printJson } from "./output.ts";

/** Larger files are no certificate: one of 256 ranks is some 100 MB. */
const MAX_BYTES = 2 ** 28;

interface CertificateResult {
  readonly file: string;
  readonly ok: boolean;
  readonly faults: readonly string[];
  readonly bound?: string | undefined;
  readonly time?: string | undefined;
  /** Why there is nothing to check: no such file, no JSON. */
  readonly unreadable?: string;
}

function resultOf(file: string): CertificateResult {
  let value: unknown;
  try {
    value = readJsonFile(file, MAX_BYTES);
  } catch (error) {
    if (!(error instanceof Error) || describeLack(error) !== undefined) throw error;
    return { file, ok: false, faults: [], unreadable: error.message };
  }
  const { ok, faults, bound, time } = checkCertificate(value);
  return { file, ok, faults, bound, time };
}

function lineOf({ file, ok, faults, bound, unreadable }: CertificateResult): string {
  if (unreadable !== undefined) return `${file}: cannot be read: ${unreadable}\n`;
  if (!ok) return `${file}: does not hold: ${faults.join("; ")}\n`;
  return `${file}: proved: nothing is faster than ${bound} s/GB\n`;
}

/** Checks certificates and prints what each proves. @returns 2 when a file cannot be read, 1 when one does not hold */
export function checkCertificates(files: readonly string[], json: boolean): number {
  const results = files.map(resultOf);
  if (json) printJson({ ok: results.every(({ ok }) => ok), results });
  else for (const result of results) print(lineOf(result));
  if (results.some(({ unreadable }) => unreadable !== undefined)) return EXIT.usage;
  return results.every(({ ok }) => ok) ? EXIT.done : EXIT.checkFailed;
}
