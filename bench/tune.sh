#!/usr/bin/env bash
# Sets what Linux limits when very many connections are opened on one machine.
#
#   bench/tune.sh [--connections N]           shows what is and what it should be
#   sudo bench/tune.sh [--connections N] --apply   sets it until the next boot
#   sudo bench/tune.sh --undo                 sets everything back
#
# A value that is already enough stays as it is. The values that were there before the first
# --apply are kept in $SAVED; after a boot there is nothing to undo.
set -euo pipefail

SAVED=${SAVED:-/run/halley-tune.saved}
connections=1000000
mode=show

usage() {
    sed -n '2,9{s/^# \{0,1\}//;p}' "$0"
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
        --connections) connections=${2:-}; shift ;;
        --apply) mode=apply ;;
        --undo) mode=undo ;;
        -h | --help) usage 0 ;;
        *) echo "tune.sh: $1: expected --connections N, --apply or --undo" >&2; exit 2 ;;
    esac
    shift
done
if ! [[ $connections =~ ^[1-9][0-9]{0,8}$ ]]; then
    echo "tune.sh: --connections: expected a number" >&2
    exit 2
fi
if [ "$mode" != show ] && [ "$(id -u)" -ne 0 ]; then
    echo "tune.sh: only root may change this: sudo $0 --$mode" >&2
    exit 1
fi

# Reads a value as one line of numbers with single spaces.
value_of() { tr -s '[:space:]' ' ' < "$1" | sed 's/ $//'; }

# change <file> <value>: shows old and new, and with --apply sets it and remembers the old one.
change() {
    local file=$1 new=$2 old
    old=$(value_of "$file")
    printf '%-50s %-24s -> %s\n' "${file#/proc/sys/}" "$old" "$new"
    [ "$mode" = apply ] || return 0
    touch "$SAVED"
    grep -q "^$file " "$SAVED" || printf '%s %s\n' "$file" "$old" >> "$SAVED"
    printf '%s\n' "$new" > "$file"
}

# at_least <file> <value>: raises a single number. A kernel without the file has no such limit.
at_least() {
    [ -e "$1" ] || return 0
    local old
    old=$(value_of "$1")
    if [ "$old" -ge "$2" ]; then
        printf '%-50s %-24s is enough\n' "${1#/proc/sys/}" "$old"
    else
        change "$1" "$2"
    fi
}

undo() {
    if ! [ -e "$SAVED" ]; then
        echo "nothing to undo: $SAVED isn't there"
        return
    fi
    local file old
    while read -r file old; do
        printf '%-50s %-24s -> %s\n' "${file#/proc/sys/}" "$(value_of "$file")" "$old"
        printf '%s\n' "$old" > "$file"
    done < "$SAVED"
    rm "$SAVED"
}

# Pages of memory for a packet of about 1 KB in each connection.
packet_pages=$((connections / 4))

tcp_mem() {
    local file=/proc/sys/net/ipv4/tcp_mem low pressure high
    [ -e "$file" ] || return 0 # it is the machine's, not a network namespace's
    read -r low pressure high < "$file"
    if [ "$pressure" -ge "$packet_pages" ]; then
        printf '%-50s %-24s is enough\n' net/ipv4/tcp_mem "$low $pressure $high"
    else
        change "$file" "$((packet_pages * 3 / 4)) $packet_pages $((packet_pages * 3 / 2))"
    fi
}

ports() {
    local file=/proc/sys/net/ipv4/ip_local_port_range first last
    read -r first last < "$file"
    if [ $((last - first)) -ge 24000 ]; then
        printf '%-50s %-24s is enough\n' net/ipv4/ip_local_port_range "$first $last"
    else
        change "$file" "32768 60999"
    fi
}

tune() {
    # Open files of the whole system: both ends of each connection are here.
    at_least /proc/sys/fs/file-max $((2 * connections + 100000))
    # To what a process's limit of open files may be raised (ulimit -n, LimitNOFILE=). Halley needs
    # no more than 20,000 a worker, but with more it needs fewer workers.
    at_least /proc/sys/fs/nr_open 1048576
    # Connections that wait to be accepted; the kernel cuts each listener's own number to this. One
    # that doesn't fit tries again a second later.
    at_least /proc/sys/net/core/somaxconn 4096
    # The same for connections whose handshake isn't finished.
    at_least /proc/sys/net/ipv4/tcp_max_syn_backlog 4096
    # Ports of one source address. The clients use many addresses, 127.0.0.1, 127.0.0.2 and so on,
    # and 12,000 ports of each; Linux looks among every other port first.
    ports
    # Pages for packets of all sockets: a low mark, one from which windows get small, the end. Only
    # what is on its way takes memory; an idle socket takes none of it.
    tcp_mem
    # The hash table of connections has its size from boot; what `thash_entries=` on the kernel's
    # command line sets, no sysctl does. With fewer buckets than sockets each packet costs more.
    # One socket's buffers (least, usual, most) are left alone: they are limits, not reservations,
    # and small events never come near the usual 16 KB (tcp_wmem) and 128 KB (tcp_rmem).
    # tcp_max_orphans and tcp_max_tw_buckets are left alone as well: beyond them the kernel forgets
    # closed connections sooner, which on loopback does no harm and takes less memory.
    # An entry for each connection, where a firewall tracks them; better, exempt loopback.
    at_least /proc/sys/net/netfilter/nf_conntrack_max $((connections + 100000))
    # Nanoseconds for which an idle processor of a virtual machine looks for work before it halts.
    # A halted one is woken through the hypervisor at each wake-up of a thread; this makes that rare
    # and costs processor time where there is nothing to do.
    at_least /sys/module/haltpoll/parameters/guest_halt_poll_ns 200000
}

case $mode in
    undo) undo ;;
    *) tune ;;
esac
if [ "$mode" = apply ]; then echo "set until the next boot; sudo $0 --undo sets it back"; fi
