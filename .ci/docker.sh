#!/bin/sh
# Makes sure that a Docker engine answers: uses the running one, else installs (Debian, as root) and starts one.
# Its data and log stay under DOCKER_DATA_ROOT (default: /var/lib/docker). Prints one line saying which engine answers.
set -eu

data_root=${DOCKER_DATA_ROOT:-/var/lib/docker}
log_file=${DOCKER_LOG:-/tmp/dockerd.log}

answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

install_engine() {
    command -v dockerd >/dev/null 2>&1 && command -v iptables >/dev/null 2>&1 && return
    if ! command -v apt-get >/dev/null 2>&1 || [ "$(id -u)" != 0 ]; then
        echo "no Docker engine answers, and installing one needs root and apt-get: start Docker, or run this as root" >&2
        exit 1
    fi
    echo "installing a Docker engine (docker.io, iptables) ..." >&2
    apt-get update -qq >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io iptables >&2
}

# $@: extra options of dockerd
start_engine() {
    rm -f /var/run/docker.pid
    setsid dockerd --data-root "$data_root" "$@" >"$log_file" 2>&1 </dev/null &
    engine=$!
    tries=0
    while [ $tries -lt 150 ]; do
        if answers; then return 0; fi
        kill -0 "$engine" 2>/dev/null || return 1
        sleep 0.2
        tries=$((tries + 1))
    done
    kill "$engine" 2>/dev/null || true
    wait "$engine" 2>/dev/null || true
    return 1
}

if ! answers; then
    install_engine
    # plain first; machines without overlay or iptables support (nested containers) need the later ones
    start_engine || start_engine --storage-driver=vfs || start_engine --iptables=false --storage-driver=vfs || {
        echo "dockerd did not start; the end of $log_file:" >&2
        tail -20 "$log_file" >&2
        exit 1
    }
fi
echo "Docker engine $(docker version --format '{{.Server.Version}} ({{.Server.Os}}/{{.Server.Arch}})') answers"
