#!/usr/bin/env bash
# Installs what a bare Debian 12 lacks: `tools/install.sh run` what building and running needs,
# `tools/install.sh test` what the checks and tests need besides, `tools/install.sh console`
# what building the console needs, `tools/install.sh client` what building the JavaScript client
# needs, `tools/install.sh rivals` the servers that `make bench-rivals` measures,
# `tools/install.sh smp` the load of `make bench-smp`,
# `tools/install.sh doors` the clients of the registries that `make doors` takes its suites from,
# `tools/install.sh ketama` what `make ketama-peers` asks, `tools/install.sh epgsql` what
# `make epgsql-suites` runs on, `tools/install.sh epgsql-rivals` what `make bench-epgsql` measures.
#
# What runs Halley needs no graphical packages. Debian's rebar3 depends on some by way of Erlang's
# tools for windows, and uses none of them to build: `run` unpacks it into .tools, without them.
#
# It takes Debian's packages, for Node packages `npm ci` by the lock file, and for the Python client
# pip by its own, with hashes; nothing else. When nothing is missing it changes nothing, prints
# nothing and takes no second.
set -euo pipefail

cd "$(dirname "$0")/.."

run_packages=(
    erlang-base erlang-dev erlang-crypto erlang-mnesia erlang-tools erlang-xmerl
    erlang-inets erlang-ssl erlang-public-key
    erlang-jiffy erlang-cuttlefish erlang-getopt
    gcc libc6-dev make curl ca-certificates procps
)
test_packages=(rebar3 erlang-eunit erlang-common-test erlang-dialyzer erlang-proper erlang-meck g++
    openssl postgresql nginx haproxy caddy erlang-mochiweb)
rivals_packages=(nginx libnginx-mod-nchan nats-server libevent-dev erlang-mochiweb)
# The first Rust that knows edition 2024, and the first Node whose test runner has reporters.
rust_minor_min=85
node_major_min=18

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

rust_is_new_enough() {
    command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
    local version major minor
    version=$(cd edge && rustc --version | cut -d' ' -f2)
    IFS=. read -r major minor _ <<<"$version"
    [ "$major" -gt 1 ] || [ "$minor" -ge "$rust_minor_min" ]
}

node_is_new_enough() {
    command -v node >/dev/null && command -v npm >/dev/null || return 1
    local version
    version=$(node --version)
    version=${version#v}
    [ "${version%%.*}" -ge "$node_major_min" ]
}

python_is_new_enough() {
    python3 -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

missing=()
want() {
    local package
    for package in "$@"; do
        if ! installed "$package"; then missing+=("$package"); fi
    done
}

install_missing() {
    [ "${#missing[@]}" -gt 0 ] || return 0
    local sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || {
            say "These packages are missing, and only root can install them:"
            say "  apt-get install --no-install-recommends ${missing[*]}"
            exit 1
        }
        sudo=(sudo)
    fi
    command -v apt-get >/dev/null || {
        say "This is no Debian: install by hand what these packages have: ${missing[*]}"
        exit 1
    }
    say "Installing from Debian: ${missing[*]}"
    "${sudo[@]}" apt-get update
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "${missing[@]}"
    hash -r
    missing=()
}

# Debian starts a server when it is installed, and at each boot. The benchmark starts its own, so
# what is installed for it stays off; a server that was there before is left alone.
install_missing_servers() {
    local policy=/usr/sbin/policy-rc.d service
    local packages=" ${missing[*]} "
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
    if [ "${#missing[@]}" -gt 0 ] && [ ! -e "$policy" ] && "${as_root[@]}" true; then
        trap '"${as_root[@]}" rm -f /usr/sbin/policy-rc.d' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" install -m 755 /dev/stdin "$policy"
    fi
    install_missing
    for service in nginx haproxy caddy nats-server memcached postgresql; do
        if [[ $packages == *" $service "* ]] && [ -d /run/systemd/system ]; then
            "${as_root[@]}" systemctl disable "$service"
        fi
    done
}

install_node_packages() {
    local folder=$1 what=$2
    local stamp=$folder/node_modules/.package-lock.json
    if [ ! -f "$stamp" ] || [ "$folder/package-lock.json" -nt "$stamp" ]; then
        say "Installing the Node packages of $what"
        npm ci --prefix "$folder" --no-audit --no-fund
        touch "$stamp"
    fi
}

# Into a folder of the tree: the system's Python stays as it is.
install_python_client() {
    local venv=.tools/python source=clients/python lock stamp
    lock=$source/requirements-test.txt
    # Of a tree that was copied, the environment would still import the first one's client.
    stamp=$(pwd; cat "$lock" "$source/pyproject.toml")
    if [ "$stamp" != "$(cat "$venv/.stamp" 2>/dev/null)" ]; then
        say "Installing the Python client's packages into $venv"
        rm -rf "$venv"
        python3 -m venv "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            --require-hashes --only-binary :all: --requirement "$lock"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
            --no-deps --no-build-isolation --editable "$source"
        printf '%s\n' "$stamp" >"$venv/.stamp"
    fi
}

# The Makefile has its folder in PATH, behind all others.
unpack_rebar3() {
    local folder target=$PWD/.tools/rebar3
    if command -v rebar3 >/dev/null || [ -x "$target/usr/bin/rebar3" ]; then return; fi
    say "Unpacking Debian's rebar3 into .tools"
    folder=$(mktemp -d)
    (cd "$folder" && apt-get -o APT::Sandbox::User="$(id -un)" download rebar3)
    mkdir -p .tools
    rm -rf "$target"
    dpkg-deb --extract "$folder"/rebar3_*.deb "$folder/rebar3"
    mv "$folder/rebar3" "$target"
    rm -rf "$folder"
}

want_run() {
    want "${run_packages[@]}"
    # Debian 12 carries a current Rust for its browsers under names of its own.
    if ! rust_is_new_enough; then want cargo-web rustc-web; fi
}

want_test() {
    want "${test_packages[@]}"
    if ! node_is_new_enough; then want nodejs npm; fi
    if ! command -v chromium >/dev/null; then want chromium; fi
    if ! command -v firefox-esr >/dev/null; then want firefox-esr; fi
    if ! python_is_new_enough; then want python3 python3-venv; fi
    # The checker steps the server's clock by it (test/faults).
    if ! command -v faketime >/dev/null; then want faketime; fi
    if ! rust_is_new_enough; then
        want rustfmt-web rust-web-clippy
    elif ! command -v rustfmt >/dev/null || ! command -v cargo-clippy >/dev/null; then
        if command -v rustup >/dev/null; then
            say "Adding rustfmt and clippy by rustup"
            rustup component add rustfmt clippy
        else
            want rustfmt-web rust-web-clippy
        fi
    fi
}

# The suites themselves, and the Python 2.7 that one of them needs, go into a cache outside of the
# tree and of the system: test/doors/lib/fetch.mjs.
want_doors() {
    if ! python3 -m pip --version >/dev/null 2>&1; then want python3 python3-pip; fi
    if ! command -v go >/dev/null; then want golang-go; fi
    want debian-archive-keyring
}

case "${1:-}" in
    run) want_run; install_missing; unpack_rebar3 ;;
    test) want_run; want_test; install_missing_servers
        install_node_packages test "the tests"
        install_node_packages clients/js "the JavaScript client"
        install_python_client ;;
    console) if ! node_is_new_enough; then want nodejs npm; install_missing; fi
        install_node_packages console "the console" ;;
    client) if ! node_is_new_enough; then want nodejs npm; install_missing; fi
        install_node_packages clients/js "the JavaScript client" ;;
    rivals) want "${rivals_packages[@]}"; install_missing_servers
        install_node_packages bench/rivals/socketio "Socket.IO" ;;
    smp) want apache2-utils; install_missing ;;
    doors) want_doors; install_missing ;;
    epgsql) want erlang-common-test postgresql postgresql-15-postgis-3; install_missing_servers ;;
    epgsql-rivals) want postgresql erlang-poolboy erlang-p1-pgsql; install_missing_servers ;;
    ketama) want memcached python3 python3-pylibmc; install_missing_servers ;;
    *) echo "usage: tools/install.sh" \
            "run|test|console|client|rivals|smp|doors|ketama|epgsql|epgsql-rivals" >&2
        exit 2 ;;
esac
