#!/bin/sh
# Stops this instance's service and removes its containers and runtime files. Data and images stay.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

if pid=$(running_pid); then
    say "stopping the service (pid $pid)"
    stop_service "$pid"
else
    say "no service of this checkout runs with PORT=$PORT"
fi

[ -r "$DATA_DIR_FILE" ] && DATA_DIR=$(cat "$DATA_DIR_FILE")
if [ -r "$DATA_DIR/instance" ] && command -v docker >/dev/null; then
    instance=$(head -c 64 "$DATA_DIR/instance")
    case $instance in '' | *[!A-Za-z0-9_-]*) die "$DATA_DIR/instance is not the name of an instance" ;; esac
    containers=$(docker ps -aq --filter "label=carrel.instance=$instance") ||
        die "the Docker engine does not answer; the sandboxes of this instance could not be removed"
    if [ -n "$containers" ]; then
        # shellcheck disable=SC2086  # a list of ids
        docker rm -f $containers >/dev/null
        say "removed its sandboxes; Python variables in them are gone, files stay"
    fi
fi
rm -rf "$RUN_DIR"
