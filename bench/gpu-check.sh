#!/bin/sh
# Unpacks a packed copy of chorale beside a packed Node.js and runs bench/gpu-llama.mjs there: for GPU hosts that have
# neither. Made by: gpu-check.sh pack FOLDER (from a checkout), run by: gpu-check.sh run FOLDER [arguments of the bench].
set -eu
folder=$(cd "$2" && pwd)
case "$1" in
pack)
  node scripts/transpile.mjs
  app=$(mktemp -d)
  cp -r .cache/dev "$app/dist"
  cp -r bin package.json examples bench "$app/"
  mkdir -p "$app/node_modules"
  for name in koffi @koromix zod commander esbuild @esbuild @huggingface; do cp -r "node_modules/$name" "$app/node_modules/"; done
  tar cJf "$folder/app.tar.xz" -C "$app" .
  [ -e "$folder/node.xz" ] || xz -c "$(command -v node)" >"$folder/node.xz"
  rm -r "$app"
  ;;
run)
  shift 2
  app=$(mktemp -d)
  tar xJf "$folder/app.tar.xz" -C "$app"
  xz -dc "$folder/node.xz" >"$app/node"
  chmod +x "$app/node"
  cd "$app"
  # NVLink multicast stays off: on shared hosts it can put GPUs out of service.
  NCCL_NVLS_ENABLE=0 CUDA_MODULE_LOADING=EAGER exec ./node bench/gpu-llama.mjs "$@"
  ;;
esac
