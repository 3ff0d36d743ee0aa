/** The timers of one owner, who can end them all at once. */
export class Timers {
  readonly #pending = new Set<NodeJS.Timeout>();

  after(ms: number, then: () => void): NodeJS.Timeout {
    const timer = setTimeout(() => {
      this.#pending.delete(timer);
      then();
    }, ms);
    this.#pending.add(timer);
    return timer;
  }

  cancel(timer: NodeJS.Timeout): void {
    clearTimeout(timer);
    this.#pending.delete(timer);
  }

  clear(): void {
    for (const timer of this.#pending) clearTimeout(timer);
    this.#pending.clear();
  }
}
