/**
 * The launcher's side of mapped control segments: it keeps those it has made open, to say who died and to read what ranks
 * did last.
 */
import type { ControlSegment } from "./control-segment.ts";
import {
  type ControlWorld,
  createMappedControl,
  type MappedControl,
  type OpenControl,
  openMappedControl,
  removeMappedControl,
} from "./mapped-segment.ts";

const made = new Map<string, OpenControl>();

/** Makes what the ranks of one host share. @throws OutOfMemoryError, UnavailableError without FFI */
export function createHostControl(world: ControlWorld): MappedControl {
  const control = createMappedControl(world);
  try {
    made.set(control.path, openMappedControl(control, world, { attach: false }));
  } catch (error) {
    removeMappedControl(control);
    throw error;
  }
  return control;
}

/** A segment that this process has made and not released. */
export function hostSegment({ path }: MappedControl): ControlSegment | undefined {
  return made.get(path)?.segment;
}

/** Removes it. Idempotent. */
export function releaseHostControl(control: MappedControl): void {
  removeMappedControl(control);
  made.get(control.path)?.close();
  made.delete(control.path);
}
