/** The prototypes that all code of a process shares: no file may change or freeze them, whatever words it holds. */
const SHARED = { Object: Object.prototype, Array: Array.prototype, Function: Function.prototype } as const;
const before = Object.entries(SHARED).map(([name, prototype]) => [name, prototype, describe(prototype)] as const);

function describe(prototype: object): string {
  const own = Object.getOwnPropertyDescriptors(prototype) as Record<PropertyKey, PropertyDescriptor>;
  const words = Reflect.ownKeys(own).map((key) => `${String(key)} ${own[key]?.writable} ${own[key]?.configurable}`);
  return [`extensible ${Object.isExtensible(prototype)}`, ...words].join("\n");
}

/** What was done to them since this module was loaded, in words. */
export function changedPrototypes(): string[] {
  return before
    .filter(([, prototype, was]) => describe(prototype) !== was)
    .map(([name]) => `${name}.prototype was changed`);
}
