#!/bin/sh
# Stops this instance's service and removes its containers and runtime files. Data and images stay.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

STOP_SECONDS=15

if pid=$(running_pid); then
    say "stopping the service (pid $pid)"
    kill -TERM "$pid"
    tenths=0
    while running_pid >/dev/null; do
        sleep 0.1
        tenths=$((tenths + 1))
        if [ $tenths -ge $((STOP_SECONDS * 10)) ]; then
            say "it did not stop within $STOP_SECONDS s: killed"
            kill -KILL "$pid" 2>/dev/null || true
            sleep 0.2
            break
        fi
    done
else
    say "no service of this checkout runs with PORT=$PORT"
fi

if [ -r "$DATA_DIR/instance" ] && command -v docker >/dev/null; then
    instance=$(head -c 64 "$DATA_DIR/instance")
    case $instance in '' | *[!A-Za-z0-9_-]*) die "$DATA_DIR/instance is not the name of an instance" ;; esac
    containers=$(docker ps -aq --filter "label=carrel.instance=$instance") ||
        die "the Docker engine does not answer; the sandboxes of this instance could not be removed"
    if [ -n "$containers" ]; then
        # shellcheck disable=SC2086  # a list of ids
        count=$(docker rm -f $containers | wc -l)
        say "removed $count sandboxes"
    fi
fi
rm -rf "$RUN_DIR"
