/**
 * Tables that are looked up by the words of a program or a file: without a prototype, so that "constructor" and "toString"
 * stand in none of them.
 */

/** Takes a table's prototype away and freezes it. (An object made without one is a hash table to V8, and slower.) */
export function wordTable<T extends object>(table: T): Readonly<T> {
  return Object.freeze(Object.setPrototypeOf(table, null) as T);
}
