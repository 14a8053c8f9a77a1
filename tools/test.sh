#!/usr/bin/env bash
# Runs every test, one suite after the other, and ends with one line: `... N passed, N failed`.
# A suite that fails doesn't stop the others; a suite that could not count itself is one failure.
set -uo pipefail

cd "$(dirname "$0")/.."
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
passed_all=0
failed_all=0
summary=()

# Each counter reads a suite's output and prints "<passed> <failed>", or nothing.
count_cargo() {
    awk '/^test result:/ { gsub(/[.;]/, ""); passed += $4; failed += $6; seen = 1 }
         END { if (seen) print passed, failed }'
}
count_eunit() {
    awk '/^[0-9]+ tests?, [0-9]+ failures?/ { total += $1; failed += $3; seen = 1 }
         END { if (seen) print total - failed, failed }'
}
count_ct() {
    awk '/^All [0-9]+ tests passed/ { passed += $2; seen = 1 }
         /^Failed [0-9]+ tests/ { seen = 1
             for (i = 1; i < NF; i++) {
                 if ($i == "Failed") failed += $(i + 1)
                 if ($i == "Passed") passed += $(i + 1)
             } }
         END { if (seen) print passed + 0, failed + 0 }'
}
count_node() {
    awk '($1 == "#" || $1 == "ℹ") && $2 == "pass" { passed = $3; seen = 1 }
         ($1 == "#" || $1 == "ℹ") && $2 == "fail" { failed = $3 }
         END { if (seen) print passed, failed }'
}
count_system() {
    awk '/^system tests: / { sub(/.*: /, ""); gsub(/,/, "")
             for (i = 2; i <= NF; i++) {
                 if ($i == "passed") passed = $(i - 1)
                 if ($i == "failed") failed = $(i - 1)
             }
             seen = 1 }
         END { if (seen) print passed, failed }'
}

# suite <name> <seconds at most> <counter> <command>...
suite() {
    local name=$1 seconds_max=$2 counter=$3 log="$logs/$1" status passed failed started=$SECONDS
    shift 3
    printf '\n== %s: %s\n' "$name" "$*"
    timeout --kill-after=10 "$seconds_max" "$@" </dev/null 2>&1 | tee "$log"
    status=${PIPESTATUS[0]}
    read -r passed failed < <(sed 's/\x1b\[[0-9;]*m//g' "$log" | "$counter"; echo)
    passed=${passed:-0}
    failed=${failed:-0}
    if [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; then
        echo "$name ended with status $status (124 and 137: over its $seconds_max s)" >&2
        failed=1
    fi
    if [ "$status" -eq 0 ] && [ "$passed" -eq 0 ]; then
        echo "$name ran no test" >&2
        failed=1
    fi
    passed_all=$((passed_all + passed))
    failed_all=$((failed_all + failed))
    summary+=("$(printf '  %-8s %5d passed, %3d failed  (%d s)' \
        "$name" "$passed" "$failed" $((SECONDS - started)))")
}

suite rust 500 count_cargo \
    cargo test --workspace --no-fail-fast --locked --quiet --manifest-path edge/Cargo.toml
suite eunit 200 count_eunit rebar3 eunit
suite ct 700 count_ct rebar3 ct --readable=false
suite tidy 30 count_node node tools/tidy/tidy.test.mjs
suite system 600 count_system node test/system/run.mjs
suite faults 240 count_node node --test test/faults/*.test.mjs

printf '\n== summary\n'
printf '%s\n' "${summary[@]}"
printf 'halley: %d passed, %d failed\n' "$passed_all" "$failed_all"
[ "$failed_all" -eq 0 ]
