#!/bin/sh
# The three commands for a node with GPUs, with a finished wheel of ours.
#
# Run as `gpu_node.sh WHEEL [OPTION...]`. The options go to all three: --find-links DIR where there
# is no network, --devices N, --cuda 13.
set -eu
wheel=$1
shift
cd "$(dirname "$0")/../.."
for command in "demo" "test" "bench --quick --check"; do
  # shellcheck disable=SC2086  # a command and its options
  "${PYTHON:-python3}" build/build.py $command --platform gpu --wheel "$wheel" "$@"
done
