/**
 * A published curve's description as arguments of `chorale sim`. Looks at what the post says of the machine, never at times.
 */

/** Splits a command line as a shell does, as far as these need it. */
const words = (command) => [...command.matchAll(/"([^"]*)"|(\S+)/g)].map((match) => match[1] ?? match[2]);

/** What the curve says came closest on 2026-11-22. Plans of the library where the curve lists some. */
export function givenCommands(curve) {
  if (curve.sim.expressible === "inventory file only") return [];
  const args = words(curve.sim.command).slice(2);
  const model = args.includes("--nccl") && (curve.sim.plans === undefined || /^MI/.test(curve.class)) ? "nccl" : "plan";
  return [{ args, model }];
}

/** Machines that had no preset then. */
const SYSTEMS = {
  "custom:dgx1-v100": "dgx1-v100",
  "custom:2x dgx1-v100 --nic 1x100RoCE": "2x dgx1-v100",
  "custom:8x dgx1-v100 --nic 1x100RoCE": "8x dgx1-v100",
  "custom:a100pcie-pairs": "a100-pcie-nvlink-4",
};

const NETWORKS = [
  [/TCPXO/, "TCPXO"],
  [/TCPX/, "TCPX"],
  [/EFA/, "EFA"],
  [/gIB/, "gIB"],
  [/Slingshot/, "Slingshot"],
];

/** The system in chorale's words, with the network that the post names. */
function topologyOf({ sim, system, network, env }) {
  let text = SYSTEMS[sim.topology] ?? sim.topology;
  if (/4090/.test(system) && /x16/.test(system)) text = text.replace(/^l40s/, "rtx4090");
  if (/V100 PCIe/.test(system)) text = text.replace("l40s", "v100-pcie");
  if (/16 dies/.test(system)) text = "2x mi250-16 --nic 8x200IB";
  const kind = NETWORKS.find(([pattern]) => pattern.test(`${network} ${env}`))?.[1];
  if (kind === undefined || !/^\d+x /.test(text)) return text;
  if (!text.includes("--nic")) return `${text} --nic 1x100${kind}`;
  return text.replace(/RoCE$/, kind);
}

/** What a post says of the job, as the model takes it; `commandOf` says the same in flags. */
export function modelInput(curve) {
  const { op, gpus, env, sim, nccl } = curve;
  const devices = sim.devices?.split(",");
  const options = {};
  if (/one process|-g [2-9]/.test(env)) options.devicesPerProcess = "host";
  if (/torch/.test(env)) options.blocking = true;
  if (sim.switch === true) options.nvls = true;
  const algorithm = /NCCL_ALGO=(\w+)/.exec(env)?.[1] ?? (/^ring$/.test(env) ? "ring" : undefined);
  if (algorithm !== undefined) options.algorithm = algorithm.toLowerCase();
  const version = /^(\d\.\d+(\.\d+)?)(?!\d*x)/.exec(nccl)?.[1];
  if (version !== undefined && !/x/.test(nccl)) options.version = version;
  // The simulated chips of a Trainium post are half of its ranks.
  return {
    op,
    numRanks: devices?.length ?? gpus,
    system: topologyOf(curve),
    p2p: !/no P2P/.test(env),
    options,
    devices,
  };
}

/** The command of the library's model, or of chorale's plans where a kernel of this kind was measured. */
export function commandOf(curve) {
  const { rows, sim, gpus, kind } = curve;
  const sizes = [
    "-b",
    `${rows[0].bytes}`,
    "-e",
    `${rows.at(-1).bytes}`,
    "-f",
    rows.length > 1 && rows[1].bytes !== 2 * rows[0].bytes ? "4" : "2",
  ];
  if (kind === "kernel") {
    const topology = ["--topology", topologyOf(curve)];
    return rows.flatMap(({ bytes }) =>
      sim.plans.map(({ algorithm, args }) => {
        const given = Object.entries({ numRanks: gpus, ...args }).flatMap(([name, value]) => [
          "--arg",
          `${name}=${value}`,
        ]);
        return { args: [algorithm, ...given, ...topology, "-b", `${bytes}`, "-e", `${bytes}`], model: "plan" };
      }),
    );
  }
  const { op, numRanks, system, p2p, options, devices } = modelInput(curve);
  const args = ["--nccl", "--op", op, "--ranks", `${numRanks}`, "--topology", system];
  if (options.devicesPerProcess !== undefined) args.push("--processes", "host");
  if (options.blocking) args.push("--blocking");
  if (options.nvls) args.push("--nvls", "on");
  if (devices !== undefined) args.push("--devices", devices.join(","));
  if (!p2p) args.push("--p2p", "off");
  if (options.algorithm !== undefined) args.push("--algorithm", options.algorithm);
  if (options.version !== undefined) args.push("--nccl-version", options.version);
  const twofold = rows.every(({ bytes }, i) => i === 0 || bytes === 2 * rows[i - 1].bytes);
  if (twofold) return [{ args: [...args, ...sizes], model: "nccl" }];
  return rows.map(({ bytes }) => ({ args: [...args, "-b", `${bytes}`, "-e", `${bytes}`], model: "nccl" }));
}
