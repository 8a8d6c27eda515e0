#!/usr/bin/env bash
# Runs every job of jobs/ once without the matrix and keeps its raw log and exit code: collect.sh OUT
# For looking at what real programs say on a card; run.sh runs them under the matrix.
set -u
out=$1
cd "$(dirname "$0")/jobs" || exit
mkdir -p "$out/logs"
one() { # NAME LIMIT COMMAND...
  local name=$1 limit=$2
  shift 2
  timeout --kill-after=5 "$limit" "$@" >"$out/logs/$name.log" 2>&1
  echo "$name $?" >>"$out/exit_codes.txt"
}
python3 ../nvml_answers.py >"$out/nvml.json" 2>&1
nvidia-smi >"$out/nvidia-smi.txt" 2>&1
python3 -c "import torch, jax, cupy, numba, triton, sys; print(sys.version.split()[0], torch.__version__, jax.__version__, cupy.__version__, numba.__version__, triton.__version__)" >"$out/versions.txt" 2>&1
export PYTHONUNBUFFERED=1
one train 120 python3 train.py
python3 hold_memory.py 25 >"$out/logs/hold_memory.log" 2>&1 &
sleep 12
one small_model 60 python3 small_model.py
wait
for name in oom_self illegal_access device_assert triton_compile triton_shared_memory nvrtc_compile jax_train jax_oom cupy_oom numba_typing launch_too_many stream_capture shape_mismatch nan_loss inductor no_such_card abort_after_training; do
  one "$name" 90 python3 "$name.py"
done
one nccl_duplicate 90 torchrun --nproc_per_node 2 nccl_duplicate.py
one rank_error 90 torchrun --nproc_per_node 2 rank_error.py
one hang 15 python3 hang.py
one bad_kernel 60 nvcc -c -o /dev/null bad_kernel.cu
nvcc -gencode arch=compute_75,code=sm_75 -o /tmp/no_kernel_image no_kernel_image.cu && one no_kernel_image 60 /tmp/no_kernel_image
nvcc -o /tmp/sanitizer sanitizer.cu && one sanitizer 60 compute-sanitizer --error-exitcode 1 /tmp/sanitizer
one jit_child 60 bash -c 'set -o pipefail; python3 shape_mismatch.py | tee log.txt'
tar -czf "$out/logs.tar.gz" -C "$out" logs && rm -rf "$out/logs"
cat "$out/exit_codes.txt"
