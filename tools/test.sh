#!/usr/bin/env bash
# Runs every test and ends with the names of those that failed and one line: `... N passed,
# N failed`. A suite that fails doesn't stop the others; a suite that could not count itself is one
# failure. Suites wait more than they compute, so six run side by side.
set -uo pipefail

cd "$(dirname "$0")/.."
logs=$(mktemp -d)

# Suites run in process groups of their own, where Ctrl-C doesn't reach them.
stop() {
    local file jobs
    # What would begin the next suite goes first.
    mapfile -t jobs < <(jobs -p)
    if [ "${#jobs[@]}" -gt 0 ]; then kill "${jobs[@]}"; fi
    for file in "$logs"/*.pid; do
        if [ -f "$file" ]; then kill "$(cat "$file")"; fi
    done
    wait
    rm -rf "$logs"
}
trap stop EXIT
trap 'exit 130' INT TERM

passed_all=0
failed_all=0
summary=()
failures=()

# Each counter reads a suite's output and prints "<passed> <failed>", or nothing.
count_cargo() {
    awk '/^test result:/ { gsub(/[.;]/, ""); passed += $4; failed += $6; seen = 1 }
         /process didn.t exit successfully.*signal/ { failed++; seen = 1 }
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
         ($1 == "#" || $1 == "ℹ") && ($2 == "fail" || $2 == "cancelled") { failed += $3 }
         END { if (seen) print passed, failed }'
}
count_system() {
    awk '/^(system|client) tests: / { sub(/.*: /, ""); gsub(/,/, "")
             for (i = 2; i <= NF; i++) {
                 if ($i == "passed") passed = $(i - 1)
                 if ($i == "failed") failed = $(i - 1)
             }
             seen = 1 }
         END { if (seen) print passed, failed }'
}

count_python() {
    awk '/^Ran [0-9]+ tests? in / { total = $2; seen = 1 }
         /^FAILED / { gsub(/[^0-9 ]/, " "); for (i = 1; i <= NF; i++) failed += $i }
         END { if (seen) print total - failed, failed + 0 }'
}

# Of each suite's output, the lines that name a failed test and, behind them, the first that says
# why: by cargo, EUnit, Common Test, the system tests, Node's runner.
failed_names() {
    awk -v most="$FAILED_NAMES_MAX" '
        /^---- .* stdout ----$/ { show($2); next }
        /^ +[0-9]+\) [a-z_]+:/ { show($2); next }
        /^%%% .*: FAILED$/ { sub(/:$/, "", $4); show($2 ":" $4); next }
        /^--- failed: / { show(substr($0, 13)); next }
        /^(FAIL|ERROR): test_/ { show($2 " " $3); next }
        /process didn.t exit successfully.*signal/ { show(substr($0, index($0, ":") + 2)); next }
        /^ *not ok [0-9]+ - / { sub(/^ *not ok [0-9]+ - /, ""); show($0); next }
        why > 0 && /panicked at|Failure\/Error|^%%%|^ *error:|Error/ {
            sub(/^%%% [^ ]+ ==> /, ""); sub(/^ +/, "")
            if ($0 == "") next
            print "    " substr($0, 1, 150)
            why = 0
        }
        function show(name) {
            why = 0
            if (name in seen) return
            seen[name] = 1
            if (shown++ < most) { print name; why = 1 }
        }
        END { if (shown > most) print "and " shown - most " more; see above"
              if (!shown) print "no name is known; see above" }'
}
# Of one suite.
FAILED_NAMES_MAX=6

# run <name> <seconds at most> <command>...: the suite; how it ended is kept beside its log.
run() {
    local name=$1 seconds_max=$2 started=$SECONDS
    shift 2
    printf '\n== %s: %s\n' "$name" "$*"
    timeout --kill-after=10 "$seconds_max" "$@" </dev/null 2>&1 &
    echo "$!" >"$logs/$name.pid"
    wait "$!"
    echo "$? $((SECONDS - started)) $seconds_max" >"$logs/$name.end"
    rm "$logs/$name.pid"
}

# tally <name> <counter>: adds what the suite's log says.
tally() {
    local name=$1 counter=$2 log="$logs/$1" status seconds seconds_max passed failed
    read -r status seconds seconds_max < <(cat "$log.end" || echo "1 0 0")
    sed -i 's/\x1b\[[0-9;]*m//g' "$log"
    read -r passed failed < <("$counter" <"$log"; echo)
    passed=${passed:-0}
    failed=${failed:-0}
    # What was cut off may have had more to say than the failures that it did report.
    if [ "$status" -ge 124 ] || { [ "$status" -ne 0 ] && [ "$failed" -eq 0 ]; }; then
        failures+=("  $name: ended with status $status (124 and 137: over its $seconds_max s)")
        failed=$((failed + 1))
    fi
    if [ "$status" -eq 0 ] && [ "$passed" -eq 0 ]; then
        failures+=("  $name: ran no test")
        failed=1
    fi
    if [ "$failed" -gt 0 ]; then
        while IFS= read -r line; do failures+=("  $name: $line"); done < <(failed_names <"$log")
    fi
    passed_all=$((passed_all + passed))
    failed_all=$((failed_all + failed))
    if [ "$failed" -gt 0 ]; then failed_of[$name]=$failed; fi
    summary+=("$(printf '  %-8s %5d passed, %3d failed  (%d s)' \
        "$name" "$passed" "$failed" "$seconds")")
}

# job <name> <counter> <seconds at most> <command>...: what side_by_side runs.
jobs=()
job() {
    jobs+=("$1")
    counters[$1]=$2
    commands[$1]=$(printf '%q ' "${@:3}")
}
declare -A counters commands failed_of=()

# side_by_side <most>: runs the jobs, in their order, so many at a time. What one said is shown in
# one piece when it has ended.
side_by_side() {
    local most=$1 next=0 pid name
    local -A running=()
    while [ "$next" -lt "${#jobs[@]}" ] || [ "${#running[@]}" -gt 0 ]; do
        while [ "$next" -lt "${#jobs[@]}" ] && [ "${#running[@]}" -lt "$most" ]; do
            name=${jobs[next++]}
            eval "run $name ${commands[$name]}" >"$logs/$name" &
            running[$!]=$name
        done
        printf '   at %d s: %s run, %d to come\n' "$SECONDS" "${running[*]}" $((${#jobs[@]} - next))
        wait -n -p pid "${!running[@]}"
        name=${running[$pid]}
        unset "running[$pid]"
        cat "$logs/$name"
        tally "$name" "${counters[$name]}"
    done
    jobs=()
}

# again_alone: six suites on two cores are a load that no test was made for, and a test that reads
# too early loses its race there. If no more than UNSTEADY_MAX tests failed in all, their suites run
# once more, one after another. A test that passes now is unsteady: it is named, to be mended, and
# doesn't refuse the change. A fault that is always there fails twice. What the checker of faults
# has found once is found: `faults` has no second run.
UNSTEADY_MAX=3
unsteady=()
again_alone() {
    local names=("${!failed_of[@]}") name before passed
    if [ "$failed_all" -gt "$UNSTEADY_MAX" ] || [ -n "${failed_of[faults]:-}" ]; then return; fi
    unsteady=("${failures[@]}")
    failures=()
    for name in "${names[@]}"; do
        before=${failed_of[$name]}
        passed=$passed_all
        failed_all=$((failed_all - before))
        unset "failed_of[$name]"
        eval "run $name ${commands[$name]}" >"$logs/$name"
        cat "$logs/$name"
        tally "$name" "${counters[$name]}"
        # The others of the suite are counted already.
        passed_all=$((passed + before - ${failed_of[$name]:-0}))
    done
}

# ct_parts <number>: Common Test in so many parts, each with every so manyth suite.
ct_parts() {
    local all=(apps/*/test/*_SUITE.erl) suites part i
    for ((part = 1; part <= $1; part++)); do
        suites=()
        for ((i = part - 1; i < ${#all[@]}; i += $1)); do suites+=("${all[i]}"); done
        job "ct-$part" count_ct 1500 rebar3 ct --readable=true \
            --logdir="${REBAR_BASE_DIR:-_build}/test/logs-$part" \
            --suite="$(printf '%s\n' "${suites[@]}" | paste -sd,)"
    done
}

# report: the last line counts, the status says whether a test failed.
report() {
    printf '\n== summary\n'
    printf '%s\n' "${summary[@]}"
    if [ "${#unsteady[@]}" -gt 0 ]; then
        printf '\n== failed beside the other suites, and ran once more alone; to be mended\n'
        printf '%s\n' "${unsteady[@]}"
    fi
    if [ "$failed_all" -gt 0 ]; then
        printf '\n== failed\n'
        printf '%s\n' "${failures[@]}"
    fi
    printf 'halley: %d passed, %d failed\n' "$passed_all" "$failed_all"
    [ "$failed_all" -eq 0 ]
}

# What is to be compiled is compiled once, before.
rebar3 ct --compile_only >/dev/null
# The tests of the edge wait for its clocks, so that more of them run at once than there are cores.
job rust count_cargo 1200 env RUST_TEST_THREADS=6 \
    cargo test --workspace --no-fail-fast --locked --quiet --manifest-path edge/Cargo.toml
# In a folder of its own: Common Test compiles with other options, and would build all anew.
job eunit count_eunit 1500 env REBAR_BASE_DIR="${REBAR_BASE_DIR:-_build}/eunit" rebar3 eunit
job faults count_node 1200 node --test \
    test/faults/*.test.mjs test/doors/*.test.mjs test/clients/*.test.mjs test/lib/*.test.mjs
ct_parts 10
# At last what is short, so that nothing long runs alone at the end.
job js count_node 1200 node --test --test-concurrency=3 clients/js/test/*.test.mjs
job as-js count_system 900 node test/clients/run.mjs node clients/js/test/adapter.mjs
job as-py count_system 900 node test/clients/run.mjs \
    .tools/python/bin/python clients/python/tests/adapter.py
job as-sse count_system 900 node test/clients/run.mjs --only '(sse)' \
    node clients/js/test/adapter.mjs halley-sse.min.js
job python count_python 300 \
    .tools/python/bin/python -m unittest discover -s clients/python/tests
job tidy count_node 300 node --test tools/tidy/*.test.mjs tools/*.test.mjs
side_by_side 6
# Runs its own files side by side, and at last those that fill the machine.
job system count_system 1500 node test/system/run.mjs
side_by_side 1
again_alone

report
