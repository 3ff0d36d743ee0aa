/**
 * Routes of large forests: millions of them, of which most are equal. Each is held once, and so is what is made of it (its
 * nodes' names, the way back): on a torus of 1,024 ranks this is a gigabyte less.
 */

type Route = readonly number[];

/** One array for all routes that are equal. */
export class SharedRoutes {
  readonly #numNodes: number;
  /** By first and last node; nearly always one. */
  readonly #known = new Map<number, Route | Route[]>();

  constructor(numNodes: number) {
    this.#numNodes = numNodes;
  }

  /** The route that is equal to this one and came first. */
  shared(route: Route): Route {
    const ends = (route[0] as number) * this.#numNodes + (route[route.length - 1] as number);
    const known = this.#known.get(ends);
    if (known === undefined) {
      this.#known.set(ends, route);
      return route;
    }
    const all = typeof known[0] === "number" ? [known as Route] : (known as Route[]);
    const equal = all.find((other) => other.length === route.length && other.every((node, i) => node === route[i]));
    if (equal === undefined) this.#known.set(ends, [...all, route]);
    return equal ?? route;
  }
}

/** A function of routes that is called once for each, however often it is asked. */
export function oncePerRoute<T>(make: (route: Route) => T): (route: Route) => T {
  const made = new Map<Route, T>();
  return (route) => {
    const known = made.get(route);
    if (known !== undefined) return known;
    const value = make(route);
    made.set(route, value);
    return value;
  };
}
