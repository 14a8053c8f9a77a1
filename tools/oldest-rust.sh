#!/usr/bin/env bash
# Whether the oldest Rust that edge/Cargo.toml promises is here, with clippy. It prints what makes
# `cargo` use it, `+1.85.0`, or `+` alone where the default one is that old. Else it says what is
# missing, and fails. `tools/oldest-rust.sh install` fetches it by rustup first.
set -euo pipefail

cd "$(dirname "$0")/.."
oldest=$(sed -n 's/^rust-version = "\([0-9.]*\)"$/\1/p' edge/Cargo.toml)

missing() {
    echo "Rust $oldest, the oldest that is promised, is not here: $1" >&2
    exit 1
}

# The default one may be that old itself, as without rustup.
if (cd edge && rustc --version 2>/dev/null) | grep "^rustc $oldest\.[0-9]* " >/dev/null; then
    echo +
    exit
fi
if ! command -v rustup >/dev/null; then
    missing "only rustup (https://rustup.rs) has it beside another one"
fi
wanted=(toolchain install "$oldest.0" --profile minimal --component clippy)
has_it() {
    rustup component list --toolchain "$oldest.0" --installed 2>/dev/null | grep ^clippy >/dev/null
}
if [ "${1:-}" = install ] && ! has_it; then
    rustup "${wanted[@]}" >&2 || missing "rustup can't fetch it"
fi
has_it || missing "rustup ${wanted[*]}"
echo "+$oldest.0"
