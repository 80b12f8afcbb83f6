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

# Models that are no pair of the Kimi kind (C, D, E): selection only, of C also rows.
others() {  # MODEL'S NAME
  local selections=full,sigma,h2o,snapkv,streaming-llm ratios=0.125,0.03125,0.0078125
  case $1 in
    *-c*) selections=full,sigma,sigma-row,sigma-content,h2o,h2o-recent,snapkv,streaming-llm,random
          run rows-2048 vestige-rows --length 2048 -n 16 ;;
    *-d*) run needle-8192 vestige-needle --length 8192 --block 512 -n 13 --methods \
            "full,sigma,streaming-llm,h2o,snapkv,sigma-2,sigma-4" --ratios $ratios
          run needle-32768 vestige-needle --length 32768 --block 4096 -n 4 --needles 26 --methods \
            full,sigma,streaming-llm --ratios $ratios ;;
    *-e*) run needle-384 vestige-needle --length 384 --block 128 -n 16 --methods $selections --ratios 0.125,0.0625 ;;
  esac
  run needle-1024 vestige-needle --length 1024 --block 128 -n 16 --methods $selections --ratios $ratios
  case $1 in *-d*) selections=full,sigma,h2o,h2o-recent,snapkv,streaming-llm,random,sigma-2,sigma-4,sigma-8,sigma-16 ;; esac
  run needle-2048 vestige-needle --length 2048 --block 256 -n 16 --methods $selections --ratios $ratios
}

for model in "$@"; do
  name=$(basename "$model" .gguf)
  run() {  # NAME EXPERIMENT FLAGS...
    local log=$out/$name-$1.jsonl experiment=$2
    shift 2
    "$ctxzip" eval "$experiment" -m "$model" -t 1 --out "$log" "$@" > /dev/null
  }
  case $name in *-c[0-9]*|*-d[0-9]*|*-e[0-9]*) others "$name"; continue ;; esac
  widths=sigma-2,sigma-4,sigma-8,sigma-12
  run needle-2048 vestige-needle --length 2048 --block 256 -n 16 --methods \
    "full,sigma,sigma-row,sigma-content,h2o,h2o-recent,snapkv,streaming-llm,random,$widths" --ratios 0.125,0.03125,0.0078125
  run needle-8192 vestige-needle --length 8192 --block 512 -n 13 --methods \
    full,sigma,sigma-row,sigma-content,streaming-llm --ratios 0.125,0.03125,0.0078125
  run needle-8192-others vestige-needle --length 8192 --block 512 -n 13 --methods \
    full,h2o,h2o-recent,snapkv,random --ratios 0.125,0.03125,0.0078125
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
