#!/usr/bin/env bash
# Trains 100 steps from the recorded weights and tokens, then compares every loss with Megatron-LM's.
# Output goes to $OUT (default: out/ beside this file); results become facts of the run in $MATRIX_FACTS.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
data=$here/../../tests/data/dsv4/train
out=${OUT:-$here/out}
steps=${STEPS:-100}

dsv4 train "$here/config.yaml" --set "steps=$steps" \
  --tokens "$data/train_tokens.safetensors" --init "$data/weights_step0.safetensors" \
  --record "$out/run.csv" --save "$out/checkpoints"

reference=$data/losses_f64.csv
if [ "$steps" != 100 ]; then # as many rows as the shorter run has: two micro-batches a step, after the header
  reference=$out/reference.csv
  head -n $((1 + 2 * steps)) "$data/losses_f64.csv" > "$reference"
fi
dsv4 align "$out/run.csv" "$reference" --picture "$out/alignment.html" ${MATRIX_FACTS:+--facts "$MATRIX_FACTS"}
