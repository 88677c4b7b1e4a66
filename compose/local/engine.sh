#!/bin/sh
# Makes sure a Docker engine answers: the one that runs, else Debian's docker.io is installed and started.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

WAIT_SECONDS=60
ENGINE_LOG=/var/log/dockerd.log

answers() { command -v docker >/dev/null && docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }
report() { say "engine: Docker $(docker version --format '{{.Server.Version}}') answers"; }

if answers; then
    report
    exit 0
fi
[ -z "${DOCKER_HOST:-}" ] || die "no Docker engine answers at DOCKER_HOST=$DOCKER_HOST. Start it, or unset DOCKER_HOST."
if [ "$(id -u)" != 0 ] && [ -S /var/run/docker.sock ] && ! [ -w /var/run/docker.sock ]; then
    die "you may not use /var/run/docker.sock. Run this with sudo, or join the group 'docker' and log in again."
fi

have() { command -v "$1" >/dev/null || [ -x "/usr/sbin/$1" ]; }
if ! have dockerd || ! have docker; then
    command -v apt-get >/dev/null || die "no Docker engine here. Install one and run this again."
    packages=docker.io
    as_root apt-get update -q || true
    # Newer releases keep the command in a package of its own.
    apt-cache show docker-cli >/dev/null 2>&1 && packages="$packages docker-cli"
    have iptables || packages="$packages iptables"
    say "engine: installing $packages"
    # shellcheck disable=SC2086  # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $packages ||
        die "apt could not install $packages. The lines above say why."
fi

if ! answers; then
    if [ -d /run/systemd/system ]; then
        say "engine: starting the service docker"
        as_root systemctl start docker || die "systemd could not start docker: see 'journalctl -u docker'"
    else
        say "engine: starting dockerd in the background; its log is $ENGINE_LOG"
        # shellcheck disable=SC2016  # expanded by the inner shell
        as_root sh -c 'PATH=$PATH:/usr/sbin:/sbin setsid nohup dockerd >>"$1" 2>&1 </dev/null &' sh "$ENGINE_LOG"
    fi
fi
seconds=0
until answers; do
    seconds=$((seconds + 1))
    if [ $seconds -gt $WAIT_SECONDS ]; then
        [ -r "$ENGINE_LOG" ] && tail -n 20 "$ENGINE_LOG" >&2
        die "the Docker engine does not answer after $WAIT_SECONDS s. Its log says why ($ENGINE_LOG, or journalctl -u docker)."
    fi
    sleep 1
done
report
