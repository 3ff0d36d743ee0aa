/**
 * The example of docs/synthesis.md's picture: two boxes of two GPUs and a switch, an all-gather over them. A test checks it
 * by the checker of certificates, so that the picture cannot say what is not so.
 */
const link = (a, b, capacity) => [
  { from: a, to: b, capacity },
  { from: b, to: a, capacity },
];

/** The tree of a root: to its neighbour in the box, and over the switch to the rank of its number in the other box. */
const tree = (root, neighbour, peer, beyond) => ({
  root,
  weight: "1/4",
  down: [
    [root, neighbour],
    [root, "switch", peer],
    [peer, beyond],
  ],
});

/** A certificate but for its seal. */
export const example = {
  schemaVersion: 1,
  collective: "all_gather",
  network: {
    nodes: [...["a0", "a1", "b0", "b1"].map((id) => ({ id, kind: "rank" })), { id: "switch", kind: "relay" }],
    edges: [
      ...link("a0", "a1", "50"),
      ...link("b0", "b1", "50"),
      ...["a0", "a1", "b0", "b1"].flatMap((id) => link(id, "switch", "25")),
    ],
  },
  secondsPerGB: "1/100",
  witness: { kind: "cut", inside: ["a0", "a1"] },
  schedule: {
    kind: "trees",
    trees: [
      tree("a0", "a1", "b0", "b1"),
      tree("a1", "a0", "b1", "b0"),
      tree("b0", "b1", "a0", "a1"),
      tree("b1", "b0", "a1", "a0"),
    ],
  },
};
