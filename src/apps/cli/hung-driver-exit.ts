import { exitNow } from "../../foreign/native/index.ts";
import type { Inventory } from "../../machine/topology/index.ts";
import { whenPrinted } from "./output.ts";

/**
 * Ends the process when a thread of it is stuck in the NVIDIA driver, which would keep it alive for as long. Call it when
 * everything is printed.
 */
export function leaveIfStuck(inventory: Inventory, code: number): void {
  if (inventory.warnings.some(({ source, message }) => source === "nvml" && /did not return within/.test(message))) {
    whenPrinted(() => exitNow(code));
  }
}
