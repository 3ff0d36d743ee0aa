#!/usr/bin/env bash
# What a host with two GPUs is asked in one go: times beside NCCL and MSCCL++, plans against the CPU executor, millions of calls.
# Steps have limits of their own; one that would end after the last second is left out. In the root of a build:
#   bash bench/cuda-campaign.sh OUT INPUTS [seconds] [step...]
# INPUTS: choices.json, cand-main.json, cand-more.json, cand-bf16.json (bench/cuda-backend.mjs), programs.json.gz
# (bench/device-programs), plans/ and beside (bench/mscclpp). The table of all steps is printed last; OUT gets log and rows.
# The step `confirm` stands for those that look for hangs and wrong results, and needs none of INPUTS on hosts that tables are
# shipped for: bash bench/cuda-campaign.sh OUT . 560 confirm
# What no notes in bench/results have of the build at hand is in `unmeasured-1`, `-2` and `-3`, one command each: conformance first.
# REACHED_CASES=TEXT has `reached-process` make only the cases whose names have that text.
# RANKS=4 asks four GPUs, where a step can. ONE_GPU=1 shows the ranks one GPU as several, with an NCCL of our own
# (test/support/one-gpu/README.md): `one-gpu` is what that can say, and no time of it counts.
set -u
# A host may have none but one that was carried there: then it has to be on the path.
command -v node >/dev/null || { echo "no node on the path" >&2; exit 3; }
out=$1 inputs=$2 limit=${3:-560}
shift 3 2>/dev/null || shift $#
steps=${*:-smi beside thread calls programs executor ours process soak more-process more-thread bf16 soak-process llama}
[ "$steps" = confirm ] && steps="smi soak-long soak-rooted resizes sizes soak-process faults-thread faults conformance-thread hosts"
case $steps in
unmeasured-1) steps="smi conformance-thread conformance copied-thread copied-process reached-process programs faults-thread" ;;
unmeasured-2) steps="faults soak-long soak-process resizes sizes hosts copies calls" ;;
unmeasured-3) steps="large-thread large-process bf16-long tune tune-copies readme llama" ;;
one-gpu) steps="smi conformance-nccl conformance-thread copied-thread programs faults-thread soak-short sizes resizes readme" ;;
esac
ranks=${RANKS:-2} isolations="thread process" patience=
# NVLink multicast stays off: on shared hosts it can put GPUs out of service.
export NCCL_NVLS_ENABLE=0 MSCCLPP_FORCE_DISABLE_NVLS=true CUDA_MODULE_LOADING=EAGER
export XDG_CACHE_HOME=$PWD/.campaign-cache
mkdir -p "$out" "$XDG_CACHE_HOME"
if [ -n "${ONE_GPU:-}" ]; then
  # What hangs there should not take the whole step.
  libraries=$(cd "$out" && pwd)/one-gpu isolations=thread patience="--backend-option timeoutMs=15000"
  bash test/support/one-gpu/build.sh "$libraries" || exit 3
  export CHORALE_CUDA_LIBRARY=$libraries/libcuda-one-gpu.so CHORALE_NCCL_LIBRARY=$libraries/libnccl-one-gpu.so
  # Streams that share a connection wait for each other, and those of all ranks are one context's here.
  # A driver loads a kernel when nothing runs on the GPU, on which the others may wait for this rank.
  export CHORALE_CUDA_FOLD=off
  export ONE_GPU_DEVICES=$ranks CUDA_DEVICE_MAX_CONNECTIONS=32
fi
log=$out/log.txt rows=$out/rows.jsonl
: >"$log" >"$rows"
table=""
main="all_reduce,all_gather,reduce_scatter" more="all_to_all,broadcast,reduce,gather,scatter"
# A table in the place of the shipped ones.
given=
[ -f "$inputs/choices.json" ] && given="--choices $inputs/choices.json"
# shellcheck disable=SC2086
backend() { node bench/cuda-backend.mjs "$@" --ranks "$ranks" $given --json; }
# shellcheck disable=SC2086
soak() { node test/campaigns/device-soak.mjs --ranks "$ranks" $given --json "$@"; }
# shellcheck disable=SC2086
conform() { node dist/apps/conformance/conformance-command.js --backend cuda --ranks "$ranks" $patience --times "$@"; }
# A table of which every size of operations goes by one plan: NAME, then operations and labels in turn. Cases of data alone.
forced() {
  local name=$1 rows=
  shift
  while [ "$1" != -- ]; do
    rows+="${rows:+,}{ \"backend\": \"cuda\", \"collective\": \"$1\", \"ranks\": [2, 8], \"rows\": [{ \"fromBytes\": 0, \"use\": \"$2\" }] }"
    shift 2
  done
  shift
  echo "{ \"schemaVersion\": 1, \"source\": \"$name\", \"date\": \"2026-11-29\", \"tables\": [$rows] }" >"$out/$name.json"
  store "$out/machine-$name.json" "$out/$name.json" && CHORALE_CHOICES=$out/machine-$name.json conform --only data "$@"
}
# By copy engines where an operation has that.
copied() {
  forced copied all_gather direct-all-gather*16@copies.512 all_to_all direct-all-to-all*16@copies.512 broadcast direct-broadcast*16@copies.512 \
    gather direct-gather@copies scatter direct-scatter*16@copies.512 -- "$@"
}
# By kernels that read or write buffers of other ranks.
reached() {
  forced reached all_reduce two-phase-all-reduce*64@256 all_gather streaming-all-gather*66@512 reduce_scatter read-reduce-scatter*64@256.u8 \
    all_to_all one-pass-all-to-all*16@256 broadcast one-pass-broadcast*16@256 reduce one-pass-reduce*16@256 gather direct-gather*16@256 \
    scatter one-pass-scatter*16@256 -- "$@"
}
# Stores a table as this machine's own: in the file, the table.
store() {
  node --input-type=module -e 'import { readFileSync } from "node:fs"; const { writeMachineSection } = await import(process.cwd() + "/dist/machine/cost/index.js"); writeMachineSection(process.argv[1], "choices", { chorale: "campaign", date: "2026-11-24", data: JSON.parse(readFileSync(process.argv[2], "utf8")) })' "$1" "$2"
}
# This machine's own table, for programs that take none.
machine() {
  [ -n "$given" ] || return 0
  export CHORALE_CHOICES=$1
  store "$1" "$inputs/choices.json"
}
run() {
  case $1 in
  smi) nvidia-smi -L && nvidia-smi topo -m && nvidia-smi --query-gpu=driver_version,clocks.sm,clocks.mem,power.draw --format=csv ;;
  beside) "$inputs/beside" collectives --to 1073741824 --dtypes f32,bf16 ;;
  thread) backend thread --ops $main --to 1073741824 --candidates "$inputs/cand-main.json" ;;
  process) backend process --ops $main --to 1073741824 --candidates "$inputs/cand-main.json" ;;
  calls) backend thread --ops all_reduce --to 1024 --calls && backend process --ops all_reduce --to 1024 --calls ;;
  more-thread) backend thread --ops $more --candidates "$inputs/cand-more.json" ;;
  more-process) backend process --ops $more --candidates "$inputs/cand-more.json" ;;
  bf16) backend thread --ops all_reduce,reduce_scatter --dtypes bf16 --candidates "$inputs/cand-bf16.json" ;;
  executor) "$inputs/beside" executor "$inputs/plans" ;;
  ours) node bench/mscclpp/ours.mjs "$inputs/plans" ;;
  programs) node bench/device-programs/run.mjs "$inputs/programs.json.gz" thread --worlds "${WORLDS:-14}" --seconds "${PROGRAMS_SECONDS:-65}" ;;
  programs-process) node bench/device-programs/run.mjs "$inputs/programs.json.gz" process --worlds "${WORLDS:-14}" --seconds 65 ;;
  soak) soak --seconds 75 ;;
  soak-short) soak --seconds 30 ;;
  soak-long) soak --seconds 150 ;;
  soak-rooted) soak --rooted --graph 4000000 --direct 50000 --racing 50000 --seconds 60 ;;
  sizes) for isolation in $isolations; do node bench/cuda-random-sizes.mjs $isolation $given --json; done ;;
  copies) node bench/cuda-peer-copies.mjs --json ;;
  soak-process) soak --isolation process --graph 2000000 --direct 100000 --racing 100000 --seconds 25 ;;
  # shellcheck disable=SC2086
  resizes) for isolation in $isolations; do node bench/cuda-resizes.mjs $isolation $given --json; done ;;
  faults) machine "$PWD/machine.json" && node test/campaigns/faults.mjs --backend cuda --isolation process --ranks "$ranks" --kills 10 --each 1 --json ;;
  faults-thread) machine "$PWD/machine.json" && node test/campaigns/faults.mjs --backend cuda --ranks "$ranks" --kills 6 --each 1 --json ;;
  # NCCL alone: of use where it is ours.
  conformance-nccl) node dist/apps/conformance/conformance-command.js --backend nccl --ranks "$ranks" --times ;;
  conformance-thread) machine "$PWD/machine.json" && conform ;;
  conformance) conform --isolation process ;;
  copied-thread) copied ;;
  copied-process) copied --isolation process ;;
  # shellcheck disable=SC2086
  reached-process) reached --isolation process ${REACHED_CASES:+--filter "$REACHED_CASES"} ;;
  large-thread) backend thread --ops all_gather,all_to_all,broadcast,gather,scatter --from 67108864 --to 1073741824 ;;
  large-process) backend process --ops all_gather,all_to_all,broadcast,gather,scatter --from 67108864 --to 1073741824 ;;
  bf16-long) backend process --ops $main --dtypes bf16 --to 1073741824 ;;
  tune-copies) node bin/chorale.mjs tune all_gather -n "$ranks" --backend cuda -b 64M -e 1G --budget 60 --dry-run ;;
  readme)
    export CHORALE_CHOICES=$out/machine-readme.json
    ring=examples/write-a-collective/ring.ts
    node bin/chorale.mjs check $ring --arg numRanks=2 &&
      node bin/chorale.mjs tune $ring -n 2 --backend cuda --budget 30 &&
      node bin/chorale.mjs launch -n 2 --backend cuda examples/write-a-collective/tuned.ts
    ;;
  # Two hosts of one GPU each, as far as NCCL knows: sockets, no peer access, no shared memory.
  hosts) node test/campaigns/pretended-hosts.mjs --ranks 1 ;;
  # Programs of a user's own, one that reaches buffers and one in packets.
  tune) for program in examples/write-a-collective/ring.ts one-shot-packet-all-reduce; do node bin/chorale.mjs tune $program -n 2 --backend cuda -b 1K -e 16M -f 16 --budget 35 --dry-run; done ;;
  llama) for b in cuda nccl cuda nccl; do echo "$b"; node bench/gpu-llama.mjs --bench --tp 2 --context 128 --repeats 3 --steps 64 --backend $b; done ;;
  *) echo "no step $1"; return 2 ;;
  esac
}
# What carries the step's mark in its environment, and still runs.
left_of() { grep -lsaz "^CHORALE_CAMPAIGN=$$-$1\$" /proc/[0-9]*/environ | cut -d/ -f3; }
limit_of() {
  case $1 in
  smi) echo 10 ;; beside) echo 70 ;; thread | process) echo 110 ;; calls) echo 30 ;; executor) echo 45 ;; ours) echo 60 ;;
  programs*) echo 105 ;; soak) echo 100 ;; soak-long) echo 180 ;; soak-process) echo 50 ;; soak-rooted) echo 80 ;; large-* | bf16-long) echo 120 ;; readme | tune*) echo 90 ;; resizes | sizes) echo 40 ;; llama) echo 110 ;; faults*) echo 120 ;; *) echo 80 ;;
  esac
}
for step in $steps; do
  left=$((limit - SECONDS)) most=$(limit_of "$step")
  if [ "$left" -lt 12 ]; then
    table+="$step: left out"$'\n'
    continue
  fi
  [ "$most" -gt "$left" ] && most=$left
  begin=$SECONDS
  echo "== $step" >>"$log"
  export -f run backend machine soak conform forced copied reached store
  export inputs given main more ranks out isolations patience
  CHORALE_CAMPAIGN=$$-$step timeout -k 5 "$most" bash -c "run $step" >"$out/step.out" 2>"$out/step.err"
  status=$?
  # The shell of a step ends before what it started, and a rank leads a group of its own: what is left spins on the GPUs, and
  # all later times would be wrong.
  left_over=0
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    pids=$(left_of "$step")
    [ -z "$pids" ] && break
    # What ends by itself has a moment for it.
    [ "$left_over" -eq 0 ] && sleep 1 && pids=$(left_of "$step")
    [ -z "$pids" ] && break
    left_over=$(wc -w <<<"$pids")
    # shellcheck disable=SC2086
    kill -KILL $pids 2>/dev/null
    sleep 0.5
  done
  cat "$out/step.out" "$out/step.err" >>"$log"
  # Rows of any step: lists or one object a line, with the step's name.
  node bench/cuda-campaign-rows.mjs "$step" <"$out/step.out" >>"$rows"
  line="$step: status $status, $((SECONDS - begin)) s"
  [ "$left_over" -gt 0 ] && line+=", $left_over processes left behind and killed${pids:+, some still there: $(echo $pids)}"
  [ "$status" -ge 124 ] && nvidia-smi --query-gpu=index,utilization.gpu,memory.used --format=csv,noheader >>"$log" 2>&1
  echo "$line"
  counts=$(tail -n 1 "$out/step.out" | grep -o '[0-9]* passed, .*')
  table+="$line${counts:+, $counts}"$'\n'
  [ "$status" -ne 0 ] && table+="$(tail -n 3 "$out/step.err" | cut -c1-300)"$'\n'
  rm -f "$out/step.out" "$out/step.err"
done
node bench/cuda-campaign-rows.mjs --table "$rows" | tee "$out/table.md"
echo "$table" | tee -a "$out/table.md"
