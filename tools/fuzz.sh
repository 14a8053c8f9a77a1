#!/usr/bin/env bash
# Builds every fuzz target and runs each for the given number of seconds (default 5).
#
# This is libFuzzer with coverage feedback on the stable compiler: the instrumentation flags are
# stable ones, so neither a nightly toolchain nor cargo-fuzz is needed. What is missing against
# `cargo fuzz` is AddressSanitizer; the fuzzed crates forbid `unsafe`, so overflow checks, debug
# assertions and panics are what there is to find. A finding is kept in edge/fuzz/artifacts/.
set -euo pipefail

cd "$(dirname "$0")/../edge/fuzz"
seconds=${1:-5}
host=$(rustc -vV | sed -n 's/^host: //p')
targets=$(cargo metadata --no-deps --format-version 1 --locked \
    | tr ',' '\n' | sed -n 's/.*"src_path":".*\/fuzz_targets\/\([a-z0-9_]*\)\.rs".*/\1/p' | sort -u)
[ -n "$targets" ] || { echo "fuzz: no targets in edge/fuzz" >&2; exit 1; }

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
export RUSTFLAGS=${RUSTFLAGS//$'\n'/ }

# With --target the flags reach the fuzzed crates but not their build scripts.
cargo build --release --locked --quiet --target "$host"

for target in $targets; do
    # The first directory is written to: what is found there stays out of the tree's seeds.
    found=$CARGO_TARGET_DIR/corpus/$target
    seeds=corpus/$target
    artifacts=artifacts/$target/
    mkdir -p "$found" "$seeds" "$artifacts"
    log=$(mktemp)
    if "$CARGO_TARGET_DIR/$host/release/$target" "$found" "$seeds" -artifact_prefix="$artifacts" \
        -max_total_time="$seconds" -timeout=5 -rss_limit_mb=1024 -max_len=65536 \
        -print_final_stats=1 >"$log" 2>&1
    then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        printf 'fuzz %-24s %10s runs in %s s, nothing found\n' "$target" "$runs" "$seconds"
        rm -f "$log"
    else
        tail -40 "$log" >&2
        echo "fuzz $target failed; the input is in edge/fuzz/$artifacts" >&2
        exit 1
    fi
done
