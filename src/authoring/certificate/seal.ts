/** The seal of a certificate: a hash over all of it, so that no field changes unnoticed. It proves no authorship. */
import { createHash } from "node:crypto";
import type { Certificate } from "./certificate.ts";

/** SHA-256 over the certificate without its seal, as JSON whose keys are sorted. */
export function sealOf(certificate: object): string {
  const text = JSON.stringify(certificate, (key, value: unknown) => {
    if (key === "seal") return undefined;
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
    return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
  });
  return createHash("sha256").update(text).digest("hex");
}

/** Adds the seal that `checkCertificate` asks for. */
export function sealCertificate(certificate: Omit<Certificate, "seal">): Certificate {
  return { ...certificate, seal: sealOf(certificate) };
}
