#!/usr/bin/env bash
# Runs the experiments of docs/results-vestigekv.md on trained models, one log each.
#
#   tools/vestige/experiments.sh CTXZIP OUT MODEL.gguf...
#
# CTXZIP is the program, OUT a folder for the logs. A log that is there goes on. The logs of docs/results/vestige are
# compressed with gzip -9 -n.
set -euo pipefail
ctxzip=$1 out=$2
shift 2
mkdir -p "$out"
for model in "$@"; do
  name=$(basename "$model" .gguf)
  run() {  # NAME EXPERIMENT FLAGS...
    local log=$out/$name-$1.jsonl experiment=$2
    shift 2
    "$ctxzip" eval "$experiment" -m "$model" -t 1 --out "$log" "$@" > /dev/null
  }
  widths=sigma-2,sigma-4,sigma-8,sigma-12
  run needle-2048 vestige-needle --length 2048 --block 256 -n 16 --methods \
    "full,sigma,sigma-row,sigma-content,h2o,h2o-recent,snapkv,streaming-llm,random,$widths" --ratios 0.125,0.03125,0.0078125
  run needle-8192 vestige-needle --length 8192 --block 512 -n 13 --methods \
    full,sigma,sigma-row,sigma-content,streaming-llm --ratios 0.125,0.03125,0.0078125
  run rows-2048 vestige-rows --length 2048 -n 16
  run recall-2048 vestige-recall --length 2048 --block 256 -n 16 --methods \
    evicted,recall,recall-16,recall-32,recall-top16,recall-sound --ratios 0.125,0.03125,0.0078125
  run stream-2048 vestige-stream --length 2048 --block 256 -n 16 --methods \
    full,evicted,recall,recall-top16,recall-sound,recent,evicted-streamed,recall-streamed --ratios 0.125,0.03125,0.0078125
  run stream-8192 vestige-stream --length 8192 --block 512 -n 13 --methods \
    full,evicted,recall,recall-top16,recent --ratios 0.125,0.03125,0.0078125
  run needle-32768 vestige-needle --length 32768 --block 4096 -n 4 --needles 26 --methods \
    full,sigma,sigma-row,sigma-content,streaming-llm --ratios 0.125,0.03125,0.0078125
  run stream-32768 vestige-stream --length 32768 --block 4096 -n 4 --needles 26 --methods \
    full,evicted,recall,recall-top16,recent --ratios 0.125,0.03125,0.0078125
  run continuation-2048 vestige-continuation --length 2048 --block 256 -n 16 --methods \
    full,evicted,recall,recall-top16,recent --ratios 0.125,0.03125,0.0078125
done
