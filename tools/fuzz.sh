#!/usr/bin/env bash
# Builds every fuzz target and runs one after the other, each until its seconds or its executions
# are over, whichever comes first; then prints a table of what was run. Targets named brain_* are
# the brain's: properties in Erlang, run by tools/fuzz.escript.
#
#   tools/fuzz.sh [<seconds>] [<target>...]
#   tools/fuzz.sh pack [<target>...]
#
# `pack` runs nothing new: of all inputs that runs have found it keeps those that together reach
# what all reach, small ones first, in edge/fuzz/corpus/<target>.tar.gz.
#
#   FUZZ_SECONDS   how long each target runs, if it isn't the first argument (5)
#   FUZZ_RUNS      how many executions it makes at most (0: no bound)
#
# This is libFuzzer with coverage feedback on the stable compiler: the instrumentation flags are
# stable ones, so neither a nightly toolchain nor cargo-fuzz is needed. What is missing against
# `cargo fuzz` is AddressSanitizer; the fuzzed crates forbid `unsafe`, so overflow checks, debug
# assertions and panics are what there is to find. A finding is kept in edge/fuzz/artifacts/.
set -euo pipefail

cd "$(dirname "$0")/.."
root=$PWD
cd edge/fuzz
seconds=${1:-${FUZZ_SECONDS:-5}}
runs=${FUZZ_RUNS:-0}
shift $(($# > 0 ? 1 : 0))
host=$(rustc -vV | sed -n 's/^host: //p')
all=$(cargo metadata --no-deps --format-version 1 --locked | tr ',' '\n' \
    | sed -n 's/.*"src_path":".*\/fuzz_targets\/\([a-z0-9_]*\)\.rs".*/\1/p' | sort -u)
brain="brain_bodies brain_costs brain_jwks brain_frames"
targets=() of_brain=()
for target in ${*:-$all $( [ "$seconds" = pack ] || echo "$brain" )}; do
    case $target in
        brain_*) of_brain+=("$target") ;;
        *) targets+=("$target") ;;
    esac
done
[ -n "$all" ] || { echo "fuzz: no targets in edge/fuzz" >&2; exit 1; }

# Longer inputs are not packed: what they reach is reached by shorter ones, or is a limit.
PACKED_BYTES_MAX=400

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}
RUSTFLAGS="--cfg fuzzing -Cdebug-assertions -Coverflow-checks -Ccodegen-units=1
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
export RUSTFLAGS=${RUSTFLAGS//$'\n'/ }

# With --target the flags reach the fuzzed crates but not their build scripts.
[ "${#targets[@]}" = 0 ] || cargo build --release --locked --quiet --target "$host"

# stat <name> <log>: one of libFuzzer's numbers at the end of a run.
stat() { sed -n "s/^stat::$1: *//p" "$2"; }

# watch <pid> <target> <log>: a line that tells how far it is, where somebody looks.
watch() {
    [ -t 2 ] || return 0
    local started=$SECONDS done
    while kill -0 "$1" 2>/dev/null; do
        done=$(tail -c 300 "$3" | tr '\r' '\n' | sed -n 's/^#\([0-9]*\).*/\1/p' | tail -1)
        printf '\r%-12s %12s executions, %4d of %d s' \
            "$2" "${done:-0}" $((SECONDS - started)) "$seconds" >&2
        sleep 1
    done
    printf '\r\033[K' >&2
}

if [ "$seconds" = pack ]; then
    for target in "${targets[@]}"; do
        kept=$(mktemp -d)
        log=$(mktemp)
        mkdir -p "$CARGO_TARGET_DIR/corpus/$target"
        if ! "$CARGO_TARGET_DIR/$host/release/$target" -merge=1 -max_len="$PACKED_BYTES_MAX" \
            "$kept" "$CARGO_TARGET_DIR/corpus/$target" "corpus/$target" >"$log" 2>&1; then
            tail -40 "$log" >&2
            echo "fuzz pack: $target failed; its corpus/$target.tar.gz is as it was" >&2
            rm -rf "$kept" "$log"
            exit 1
        fi
        tar --create --directory "$kept" --sort=name --mtime=@0 --owner=0 --group=0 . \
            | gzip --no-name --best >"corpus/$target.tar.gz"
        printf '%-12s %6d inputs %8d bytes\n' "$target" "$(find "$kept" -type f | wc -l)" \
            "$(wc -c <"corpus/$target.tar.gz")"
        rm -rf "$kept" "$log"
    done
    exit 0
fi

printf '%-12s %12s %6s %12s %10s\n' target executions s executions/s inputs
for target in "${targets[@]}"; do
    # The first directory is written to: what is found there stays out of the tree's seeds.
    found=$CARGO_TARGET_DIR/corpus/$target
    seeds=corpus/$target
    artifacts=artifacts/$target/
    mkdir -p "$found" "$seeds" "$artifacts"
    # What earlier runs found that no other input covers; see README.md.
    if [ -f "corpus/$target.tar.gz" ]; then
        tar --extract --gzip --file "corpus/$target.tar.gz" --directory "$found"
    fi
    dictionary=()
    if [ -f "dictionaries/$target" ]; then dictionary=(-dict="dictionaries/$target"); fi
    log=$(mktemp)
    started=$SECONDS
    "$CARGO_TARGET_DIR/$host/release/$target" "$found" "$seeds" -artifact_prefix="$artifacts" \
        "${dictionary[@]}" -max_total_time="$seconds" -runs="$((runs > 0 ? runs : -1))" \
        -timeout=5 -rss_limit_mb=1024 -max_len=4096 -print_final_stats=1 >"$log" 2>&1 &
    fuzzer=$!
    watch "$fuzzer" "$target" "$log"
    if ! wait "$fuzzer"; then
        tail -40 "$log" >&2
        echo "fuzz $target failed; the input is in edge/fuzz/$artifacts" >&2
        exit 1
    fi
    printf '%-12s %12s %6d %12s %10d\n' "$target" "$(stat number_of_executed_units "$log")" \
        $((SECONDS - started)) "$(stat average_exec_per_sec "$log")" \
        "$(find "$found" -type f | wc -l)"
    rm -f "$log"
done

[ "${#of_brain[@]}" -gt 0 ] || exit 0
cd "$root"
rebar3 as test compile >/dev/null
escript tools/fuzz.escript "${REBAR_BASE_DIR:-_build}/test/lib" "$seconds" "$runs" "${of_brain[@]}"
