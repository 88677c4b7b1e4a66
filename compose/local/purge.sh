#!/bin/sh
# After down.sh: removes the data of this instance and the images.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

# Only what the service made: somebody may have named a directory that holds other things.
for dir in "$DATA_DIR" "${UPLOADS_DIR:-}"; do
    [ -d "$dir" ] || continue
    if [ "$dir" = "$DATA_DIR" ] && ! [ -f "$dir/instance" ]; then
        say "$dir is not a data directory of Carrel: left alone"
        continue
    fi
    say "removing the data in $dir"
    rm -rf "$dir/boxes" "$dir/objects" "$dir/tmp" "$dir/lock" "$dir/instance" "$dir"/carrel.db*
    rmdir "$dir" 2>/dev/null || say "$dir holds other files too: kept"
done
if docker image inspect "$SANDBOX_IMAGE" >/dev/null 2>&1; then
    if [ -n "$(docker ps -aq --filter "ancestor=$SANDBOX_IMAGE")" ] || ! docker image rm "$SANDBOX_IMAGE" >/dev/null 2>&1; then
        say "the image $SANDBOX_IMAGE is in use by another instance: kept"
        exit 0
    fi
    say "removed the image $SANDBOX_IMAGE"
fi
if docker image rm carrel-base:trixie >/dev/null 2>&1; then
    say "removed the image carrel-base:trixie"
fi
# What the builds left behind has no name any more.
docker image prune -f --filter label=carrel.protocol >/dev/null 2>&1 || true
