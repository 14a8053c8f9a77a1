#!/usr/bin/env bash
# The command line as one static program for other machines, `_build/static/halley`: linked with
# musl, so it needs no library and no certain Linux. Rust's musl target comes by rustup; Debian's
# Rust has none, and a file that `make build` makes runs on systems like the one it was built on.
set -euo pipefail

cd "$(dirname "$0")/.."
target=$(uname -m)-unknown-linux-musl

if ! [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null)" ]; then
    command -v rustup >/dev/null || {
        echo "The static program needs Rust's target $target, which rustup (https://rustup.rs)" \
            "has and Debian's Rust hasn't. The release's bin/halley-cli is the same program," \
            "for systems like this one." >&2
        exit 1
    }
    rustup target add "$target"
fi
# ring has some C, which needs no C library: the system's compiler does. `cc` would look for one of
# musl's own.
variable=CC_${target//-/_}
export "$variable=${!variable:-${CC:-cc}}"
cargo build --release --locked --manifest-path edge/Cargo.toml --package halley-cli \
    --target "$target" --config 'profile.release.strip="symbols"'
out=${REBAR_BASE_DIR:-_build}/static/halley
install -D "${CARGO_TARGET_DIR:-edge/target}/$target/release/halley" "$out"
echo "$out: $(du -h "$out" | cut -f1), $(file -b "$out" 2>/dev/null | cut -d, -f1-4 || true)"
