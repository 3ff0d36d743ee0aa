/** `chorale check --certificate`: proves that a schedule is the fastest there can be, or says what does not hold. */
import { checkCertificate } from "../../authoring/certificate/index.ts";
import { readJsonFile } from "../../foreign/formats/index.ts";
import { print, printJson } from "./output.ts";

/** Larger files are no certificate: one of 256 ranks is some 100 MB. */
const MAX_BYTES = 2 ** 28;

/** Checks certificates and prints what each proves; 1 when one does not hold. */
export function checkCertificates(files: readonly string[], json: boolean): number {
  const results = files.map((file) => {
    const { ok, faults, bound, time } = checkCertificate(readJsonFile(file, MAX_BYTES));
    return { file, ok, faults, bound, time };
  });
  if (json) printJson({ ok: results.every(({ ok }) => ok), results });
  else {
    for (const { file, ok, faults, bound } of results) {
      print(
        ok
          ? `${file}: proved: nothing is faster than ${bound} s/GB\n`
          : `${file}: does not hold: ${faults.join("; ")}\n`,
      );
    }
  }
  return results.every(({ ok }) => ok) ? 0 : 1;
}
