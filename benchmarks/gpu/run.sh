#!/usr/bin/env bash
# The matrix on a real card, end to end: run.sh OUT. Leaves run folders, diagnoses, tables and versions in OUT.
# Needs one NVIDIA card, Python 3.11+ with PyTorch, Triton, JAX, CuPy and pytest, nvcc, and this repository's light install
# (or its dependencies on PYTHONPATH).
set -u
out=$(realpath -m "$1")
mkdir -p "$out"
cd "$(dirname "$0")/../.." || exit
root=$PWD
export PYTHONPATH="$root:${PYTHONPATH:-}" MATRIX_LEASE_DIR=/tmp/matrix-leases
matrix() { python3 -m matrix "$@"; }
{
  date -u
  nvidia-smi --query-gpu=name,uuid,driver_version,memory.total --format=csv
  python3 -c "import sys, torch, triton, jax, cupy; print('Python', sys.version.split()[0], 'PyTorch', torch.__version__, 'Triton', triton.__version__, 'JAX', jax.__version__, 'CuPy', cupy.__version__)"
  nproc
} >"$out/versions.txt" 2>&1
python3 benchmarks/gpu/nvml_answers.py >"$out/nvml.json"
matrix doctor >"$out/doctor.txt" 2>&1
echo "doctor: exit $?" >>"$out/doctor.txt"

cd benchmarks/gpu || exit
rm -rf .matrix jobs/output
echo "== every job of matrix.yaml"
time matrix run matrix.yaml >"$out/run.txt" 2>&1
main=.matrix/runs/$(ls .matrix/runs | tail -1)
python3 table.py expected.json "$main" | tee "$out/table.md"

echo "== a card that somebody else holds before the job starts"
python3 jobs/hold_memory.py 40 >"$out/holder.txt" 2>&1 &
sleep 15
matrix run dirty.yaml --only small-model >"$out/dirty-before.txt" 2>&1
wait
echo "== and one that is taken while the job waits"
(sleep 12 && exec python3 jobs/hold_memory.py 40) >>"$out/holder.txt" 2>&1 &
matrix run dirty.yaml --only late-model >"$out/dirty-while.txt" 2>&1
wait
tail -n 12 "$out/dirty-before.txt" "$out/dirty-while.txt"

echo "== leases under contention"
python3 storm.py | tee "$out/storm.txt"
cd "$root" || exit
echo "== overhead of the runner"
python3 benchmarks/overhead.py 2>&1 | tee "$out/overhead.txt"
tar -czf "$out/runs.tar.gz" -C benchmarks/gpu .matrix/runs
nvidia-smi --query-gpu=memory.used --format=csv >>"$out/versions.txt"
