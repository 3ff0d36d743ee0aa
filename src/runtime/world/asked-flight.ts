/**
 * Writes what the ranks did last when a person asks for it, as of a world that seems to hang: SIGUSR2 to a launcher for which
 * CHORALE_FLIGHT_DIR names a folder. Without a folder the signal is left alone: it ends the process, as it does any other.
 */
import { recordsFlight } from "./write-flight-file.ts";

const ASKING_SIGNAL = "SIGUSR2";

/** Hears of it. @returns stops that */
export function onFlightAsked(write: () => void): () => void {
  if (!recordsFlight()) return () => {};
  process.on(ASKING_SIGNAL, write);
  return () => void process.removeListener(ASKING_SIGNAL, write);
}
