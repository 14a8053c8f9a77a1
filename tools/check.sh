#!/usr/bin/env bash
# What CI asks of the code itself. Each step prints one line when it holds and its own output when
# it doesn't; the first that fails ends the check.
set -uo pipefail

cd "$(dirname "$0")/.."
libraries=${REBAR_BASE_DIR:-_build}/default/lib
FUZZ_SECONDS=${FUZZ_SECONDS:-5}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# step <what> <command>...
step() {
    local what=$1 started=$SECONDS
    shift
    if "$@" </dev/null >"$log" 2>&1; then
        printf 'ok    %-44s %4d s\n' "$what" $((SECONDS - started))
    else
        cat "$log"
        printf 'FAIL  %-44s (%s)\n' "$what" "$*" >&2
        exit 1
    fi
}

cargo_in_edge() { (cd edge && cargo "$@"); }

clippy=(clippy --workspace --all-targets --locked --quiet)
clippy_of_oldest() {
    (cd edge && CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/oldest \
        cargo "$oldest" "${clippy[@]}" -- -D warnings)
}

step "house rules" node tools/tidy/tidy.mjs
step "the console is built from its sources" node console/check.mjs
step "Erlang compiles without a warning" rebar3 compile
step "Erlang tests compile without a warning" rebar3 as test compile
step "reference pages are what the code says" escript tools/docs.escript "$libraries" check
step "xref" rebar3 xref
step "halley needs no other application" escript tools/alone.escript "$libraries"
step "dialyzer" rebar3 dialyzer
step "Rust format" cargo_in_edge fmt --all --check
step "Python types" .tools/python/bin/mypy --config-file clients/python/pyproject.toml \
    --cache-dir .tools/python/.mypy_cache clients/python/src clients/python/tests
step "clippy" cargo_in_edge "${clippy[@]}" -- -D warnings
# The oldest Rust that is promised. `.ci/run` fails where it isn't here.
if ! oldest=$(tools/oldest-rust.sh); then
    printf 'not   clippy of the oldest Rust\n'
elif [ "$oldest" != + ]; then
    step "clippy of Rust ${oldest#+}" clippy_of_oldest
fi
step "fuzz targets, $FUZZ_SECONDS s each" tools/fuzz.sh "$FUZZ_SECONDS"
printf 'check: all holds\n'
