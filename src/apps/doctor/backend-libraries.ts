/** Which engines could be used here: each is found and opened, or it says where it was looked for and how to get it. */
import { type LibrarySpec, openLibrary } from "../../foreign/native/index.ts";
import { NVML_LIBRARY } from "../../machine/hardware/index.ts";
import { backendKind, LAUNCH_BACKENDS } from "../../runtime/world/index.ts";

export interface EngineReport {
  readonly name: string;
  readonly available: boolean;
  /** The library's path, or why it is not there. */
  readonly detail: string;
  readonly howToGetIt?: string;
}

/** What the probes and the backends load, as they look for it. */
async function librariesHere(): Promise<readonly LibrarySpec[]> {
  const kinds = await Promise.all(LAUNCH_BACKENDS.map(backendKind));
  const lists = await Promise.all(kinds.map((kind) => kind.libraries()));
  // Backends may stand on the same library.
  return [...new Map([NVML_LIBRARY, ...lists.flat()].map((spec) => [spec.name, spec])).values()];
}

/** Opens each engine's library; nothing of it is initialised. */
export async function findEngines(libraries?: readonly LibrarySpec[]): Promise<EngineReport[]> {
  const specs = libraries ?? (await librariesHere());
  return specs.map((spec) => {
    const library = openLibrary(spec);
    if (!library.available)
      return { name: spec.name, available: false, detail: library.why, howToGetIt: library.howToGetIt };
    // Left loaded: MPI and CUDA do not bear being unloaded.
    return { name: spec.name, available: true, detail: library.path };
  });
}
