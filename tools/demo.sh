#!/usr/bin/env bash
# The main job once, from a text to answers: zip the sample document to 30% and ask it five questions.
#   tools/demo.sh [PROGRAM]
set -euo pipefail
program=${1:-build/ctxzip}
text=$(dirname "$0")/../tests/data/sample.txt
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

echo "== ctxzip zip sample.txt -o sample.ctz --ratio 0.3"
"$program" zip "$text" -o "$folder/sample.ctz" --ratio 0.3
echo
echo "== ctxzip ask sample.ctz QUESTION... (five questions, one context, nothing prefilled again)"
"$program" ask "$folder/sample.ctz" --max-tokens 48 \
  "Who founded the observatory, and in which year?" \
  "How high above the sea does the observatory stand?" \
  "Which town is the observatory near?" \
  "Who built the first building?" \
  "What was the first instrument?"
