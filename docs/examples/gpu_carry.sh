#!/bin/sh
# Downloads all the wheels that the commands for a GPU node install, on a machine with a network.
#
# Run as `gpu_carry.sh DIR [REQUIREMENT...]`, with the same Python and machine as the node's. The
# requirements are jax with its CUDA plugin, and a cuDNN that V100s can use, if none are given.
set -eu
folder=$1
shift
[ $# -gt 0 ] || set -- "jax[cuda12]==0.10.2" "nvidia-cudnn-cu12>=9.10.1,<9.11"
cd "$(dirname "$0")/../.."
exec "${PYTHON:-python3}" -m pip download --dest "$folder" --only-binary=:all: \
  --requirement build/requirements/tools.txt --requirement build/requirements/bench.txt \
  --requirement build/requirements/jax.txt \
  "$(grep ^pytest== tests/requirements.txt)" "$@"
