#!/usr/bin/env bash
# Installs a build to a temporary prefix and uses it the way another project would.
#   install_test.sh CMAKE BUILD SOURCE CXX      exit code 77: skipped, the model is absent
set -euo pipefail
cmake=$1 build=$2 source=$3 cxx=$4
model=${CTXZIP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ctxzip}/models/smollm2-135m-instruct-q4_1.gguf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() { echo "install_test: $*" >&2; exit 1; }

"$cmake" --install "$build" --prefix "$prefix" >"$work/install.log" || { cat "$work/install.log"; fail "install failed"; }

[ -x "$prefix/bin/ctxzip" ] || fail "bin/ctxzip is missing"
library=$(find "$prefix" -name libctxzip.so)
[ -n "$library" ] || fail "libctxzip.so is missing"
extra=$(find "$prefix" -type f -o -type l | grep -vE '/bin/ctxzip$|/libctxzip\.so[.0-9]*$|/include/ctxzip/[a-z_]+\.h$|/cmake/ctxzip/ctxzip-[a-z-]+\.cmake$' || true)
[ -z "$extra" ] || fail "installed without need: $extra"
foreign=$(nm -D --defined-only --demangle "$library" | cut -d' ' -f3- | grep -vE '^(typeinfo (name )?for |vtable for )?ctxzip::' || true)
[ -z "$foreign" ] || fail "libctxzip.so exports symbols that are not ctxzip's: $(head -5 <<<"$foreign")"
grep -rq "$build\|$source" "$prefix/include" "$(dirname "$library")/cmake" && fail "an installed file names the source tree"
"$prefix/bin/ctxzip" --version

cp -r "$source/examples" "$work/examples"
"$cmake" -S "$work/examples" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" \
  -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wconversion -Werror" >"$work/configure.log" || { cat "$work/configure.log"; fail "find_package failed"; }
"$cmake" --build "$work/build" >"$work/build.log" || { cat "$work/build.log"; fail "the example does not build"; }

if [ ! -f "$model" ]; then
  echo "install_test: installed and built; not run, because SmolLM2 is not in the cache folder (ctxzip model fetch)"
  exit 77
fi
cat >"$work/text" <<'TEXT'
The lighthouse at Kettle Point was built in 1878 by Anna Breck. It stands 31 metres tall and is painted white. Every
evening its keeper climbs 164 steps, winds the clockwork and lights the lamp. In 1931 the lamp was replaced by an
electric one, and the keeper's house became a small museum of the sea.
TEXT
"$work/build/ask_text" "$model" "$work/text" "$work/out.ctz" "Who built the lighthouse?" | tee "$work/output"
[ -s "$work/out.ctz" ] || fail "no file was written"
grep -q "from the buffer: the same answer" "$work/output" || fail "the buffer answers otherwise than the file"
grep -q "cancelled: cancelled after 3 tokens" "$work/output" || fail "cancelling did not stop the answer"
"$prefix/bin/ctxzip" inspect "$work/out.ctz" --json | grep -q '"context_tokens"' || fail "the program cannot read the file"
