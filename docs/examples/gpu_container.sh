#!/bin/sh
# An overlay for a container that has a jaxlib of its own, as NVIDIA's have, shown on its GPUs.
#
# Run in the clone, as `gpu_container.sh IMAGE WHEEL DIR OUT`: a finished wheel of ours for the
# Python in there, the folder that gpu_carry.sh filled for it, and the folder to make.
set -eu
image=$1 wheel=$2 carried=$3 out=$4
where='import jaxlib, pathlib; print(pathlib.Path(jaxlib.__file__).parent.parent)'
site=$(apptainer exec --nv --bind "$PWD" "$image" python3 -c "$where")
apptainer exec --nv --bind "$PWD" "$image" python3 build/build.py overlay --platform gpu \
  --wheel "$wheel" --find-links "$carried" --site-packages "$site" --out "$out"
