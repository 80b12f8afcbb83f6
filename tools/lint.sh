#!/usr/bin/env bash
# Style that is enforced: format, folder order, and a small set of clang-tidy checks on changed-prone code.
#   tools/lint.sh BUILD_FOLDER
set -euo pipefail
build=${1:-build}
cd "$(dirname "$0")/.."

mapfile -t sources < <(git ls-files --cached --others --exclude-standard 'include/*.h' 'src/*.h' 'src/*.cpp' 'tests/*.h' 'tests/*.cpp' 'bench/*.h' 'bench/*.cpp' 'fuzz/*.cpp' 'examples/*.cpp')
clang-format --dry-run --Werror "${sources[@]}"

# A folder of src includes only itself and folders before it in docs/design.md.
order=(core kernels cache attention recall model score select format engine eval cli)
failed=0
for at in "${!order[@]}"; do
  folder=${order[$at]}
  [ -d "src/$folder" ] || continue
  for later in "${order[@]:$((at + 1))}"; do
    if grep -rnE "#include \"$later/" "src/$folder" --include='*.h' --include='*.cpp'; then
      echo "lint: src/$folder includes src/$later, which comes after it" >&2
      failed=1
    fi
  done
done
if grep -rnE '#include [<"](ggml|gguf|llama)' include; then
  echo "lint: a public header includes ggml or llama" >&2
  failed=1
fi
[ $failed -eq 0 ]

mapfile -t units < <(git ls-files --cached --others --exclude-standard 'src/core/*.cpp' 'src/cache/*.cpp' 'src/attention/*.cpp' 'src/score/*.cpp' 'src/select/*.cpp' 'src/format/*.cpp' 'src/engine/*.cpp')
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy -p "$build" --quiet 2>/dev/null
echo "lint: ok"
