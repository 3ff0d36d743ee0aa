/** The table of bench/residual-rms-norm.mjs, whose rows are printed one by one: contenders of a row in the order of its head. */

export function headOf(labels) {
  return [
    `| rows | hidden | ${labels.join(", us | ")}, us | ours / one | nccl / one | one kernel is | ours is | wrong |`,
    `|--:|--:|${labels.map(() => "--:|").join("")}--:|--:|:--|:--|--:|`,
  ].join("\n");
}

export function rowOf(all) {
  const [ours, nccl, one] = all;
  const ratios = [ours, nccl].map(({ us }) => (us / one.us).toFixed(2)).join(" | ");
  const short = ({ served }) => served.replace("one-shot-packet-all-reduce", "one-shot");
  const times = all.map(({ us }) => us.toFixed(2)).join(" | ");
  const wrong = all.reduce((sum, row) => sum + row.wrong, 0);
  return `| ${one.rows} | ${one.hidden} | ${times} | ${ratios} | ${short(one)} | ${short(ours)} | ${wrong} |`;
}
