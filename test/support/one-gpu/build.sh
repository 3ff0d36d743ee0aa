#!/usr/bin/env bash
# Builds the driver that shows one GPU as several, and the NCCL for it: bash test/support/one-gpu/build.sh FOLDER [ARCH]
# ARCH is nvcc's (native). DRIVER names a library in the place of libcuda.so.1: the stand-in of test/fixtures/native, over which
# the NCCL is built for the host where CUDA's headers are there.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$1 arch=${2:-native} driver=${DRIVER:-libcuda.so.1} headers=${CUDA_HOME:-/usr/local/cuda}/include
mkdir -p "$out"
# Linked by name alone: neither the driver nor the toolkit's stub of it need be on the linker's path.
name=$driver
if [ "$driver" = libcuda.so.1 ]; then
  mkdir -p "$out/names"
  gcc -shared -Wl,-soname,libcuda.so.1 -o "$out/names/libcuda.so.1" -x c /dev/null
  name=$out/names/libcuda.so.1
fi
gcc -std=gnu11 -Wall -Wextra -Werror -O2 -shared -fPIC "-DREAL_DRIVER=\"$driver\"" -o "$out/libcuda-one-gpu.so" "$here/driver.c" \
  -Wl,--no-as-needed "$name" -ldl
if [ "$driver" = libcuda.so.1 ]; then
  nvcc -std=c++17 -O2 -arch="$arch" -cudart static -shared -Xcompiler -fPIC,-fvisibility=hidden,-Wall -o "$out/libnccl-one-gpu.so" "$here/nccl.cu"
elif [ -e "$headers/cuda_fp8.h" ]; then
  g++ -std=c++17 -O1 -shared -fPIC -fvisibility=hidden "-I$headers" -o "$out/libnccl-one-gpu.so" -x c++ "$here/nccl.cu" "$here/runtime-on-host.cpp" \
    -x none "$driver" -lpthread
fi
