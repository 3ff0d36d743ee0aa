/**
 * Where the ranks of a world say what they call: on one host the control segment that all of them map; on several, that of
 * the host for groups inside it, and words of the rank's own, which messages keep, for groups that span hosts.
 */
import type { Failure } from "../../comm/index.ts";
import type { ControlSegment, GroupControl } from "../../memory/index.ts";
import type { NoticeMessages } from "./notice-messages.ts";

/** A group as this rank has opened it. */
export interface OpenedGroup {
  readonly control: GroupControl;
  /** Some members are on other hosts. */
  readonly spansHosts: boolean;
  /** Where its members take turns, if not there: of all groups of a world in one place, since a rank has one turn at a time. */
  readonly turns?: GroupControl;
}

export class WorldControl {
  /** Of this rank's host. */
  readonly host: ControlSegment;
  /** Number of each rank's host; `undefined` where there is one. */
  readonly #hosts: readonly number[] | undefined;
  readonly #notices: NoticeMessages | undefined;
  readonly #rank: number;

  constructor(
    host: ControlSegment,
    rank: number,
    across?: { readonly hosts: readonly number[]; readonly notices: NoticeMessages },
  ) {
    this.host = host;
    this.#rank = rank;
    this.#hosts = across?.hosts;
    this.#notices = across?.notices;
  }

  /** Where other ranks' calls in groups that span hosts are looked for; nowhere on one host. */
  get notices(): NoticeMessages | undefined {
    return this.#notices;
  }

  /** Opens a group; see `ControlSegment.group`. @throws OutOfMemoryError when too many groups are open */
  group(
    name: string,
    ranks: readonly number[],
    instance: number,
    member: number,
    within = "",
    title = name,
  ): OpenedGroup {
    const notices = this.#notices;
    const row = this.rowOf(ranks);
    if (notices === undefined) {
      return { control: this.host.group(name, ranks, instance, member, within), spansHosts: false };
    }
    const control = notices.segment.group(name, ranks, instance, member, within, title);
    if (row.length === ranks.length) {
      return {
        control: this.host.group(name, ranks, instance, member, within),
        spansHosts: false,
        turns: control,
      };
    }
    return { control, spansHosts: true };
  }

  /** Which of these ranks are on this rank's host. */
  rowOf(ranks: readonly number[]): readonly number[] {
    const hosts = this.#hosts;
    return hosts === undefined ? ranks : ranks.filter((rank) => hosts[rank] === hosts[this.#rank]);
  }

  /** The host of each of these ranks, as numbers. */
  hostsOf(ranks: readonly number[]): readonly number[] {
    return ranks.map((rank) => this.#hosts?.[rank] ?? 0);
  }

  get failure(): Failure | undefined {
    return this.host.failure ?? this.#notices?.segment.failure;
  }

  /** Ends the world, on all hosts. */
  fail(failure: Failure): void {
    this.host.fail(failure);
    this.look();
  }

  /** Takes news of other hosts, and sends this rank's; what ends the world on one host ends it on all. */
  look(): void {
    const notices = this.#notices;
    if (notices === undefined) return;
    const { host } = this;
    const { segment } = notices;
    if (host.failed && !segment.failed && host.failure !== undefined) segment.fail(host.failure);
    notices.look();
    if (segment.failed && !host.failed && segment.failure !== undefined) host.fail(segment.failure);
  }

  /** Says that this rank has ended everything. */
  close(): void {
    this.look();
    this.#notices?.close();
    this.host.presence.end(this.#rank);
  }
}
