#!/usr/bin/env bash
# Which system calls the edge makes once its sandbox is on: runs the edge's tests with strace around
# each edge, and prints every call with how often it was made and how often it was refused. What
# is refused here and needed belongs on the list of edge/halley-edge/src/sandbox.rs; what is on the
# list and never made may go, if no other kernel or library needs it.
#
#   tools/edge-calls.sh [<filter of tests>]
#
# Needs strace. Tests that are about time may fail under it; the table is printed all the same.
set -uo pipefail

cd "$(dirname "$0")/../edge"
command -v strace >/dev/null || { echo "edge-calls: strace is missing" >&2; exit 1; }
cargo build --quiet --locked -p halley-edge || exit 1
edge=${CARGO_TARGET_DIR:-$PWD/target}/debug/halley-edge
traces=$(mktemp -d)
trap 'rm -rf "$traces"' EXIT

# As a grandchild, strace leaves the edge to be its parent's own child.
cat >"$traces/halley-edge" <<WRAPPER
#!/bin/sh
exec strace -D -f -qq -e signal=none -o "$traces/\$\$.trace" "$edge" "\$@"
WRAPPER
chmod +x "$traces/halley-edge"

HALLEY_EDGE_PROGRAM=$traces/halley-edge \
    cargo test --quiet --locked -p halley-edge --test edge "${1:-}" -- --test-threads=2 >&2

# A line is `<thread> <call>(…) = <result>`, or two of them, the first without its result, the
# second `<thread> <... <call> resumed>…`. The second filter is the list.
awk '
    FNR == 1 { filters = 0 }
    $2 ~ /^seccomp\(SECCOMP_SET_MODE_FILTER/ { filters++; next }
    filters < 2 { next }
    $2 == "<..." { if (/= -1 ENOSYS/) refused[$3]++; next }
    $2 ~ /^[a-z0-9_]+\(/ {
        call = substr($2, 1, index($2, "(") - 1)
        made[call]++
        if (/= -1 ENOSYS/) refused[call]++
    }
    END { for (call in made) printf "%-20s %9d %9d\n", call, made[call], refused[call] }
' "$traces"/*.trace | sort | { printf '%-20s %9s %9s\n' call made refused; cat; }
