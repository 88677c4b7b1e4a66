#!/bin/sh
# build.sh IMAGE: builds the sandbox image. Shows the steps; the whole output is in build/images.log.
set -eu

image=$1
docker=${DOCKER:-docker}
log=build/images.log
status=$(mktemp)
trap 'rm -f "$status"' EXIT
mkdir -p build

base=$(sh images/base.sh)
echo "sandbox image: building $image on $base (first time: about 5 minutes; a changed runner: seconds)"
{
    "$docker" build --build-arg BASE="$base" -f images/sandbox/Dockerfile -t "$image" . 2>&1
    echo $? >"$status"
} | tee "$log" | sed -unE '/^(Step [0-9]+\/|#[0-9]+ \[)/{s/^(.{100}).+/\1.../;p}'
if [ "$(cat "$status")" != 0 ]; then
    tail -n 40 "$log" >&2
    echo "sandbox image: the build failed; everything it said is in $log" >&2
    exit 1
fi
size=$("$docker" image inspect -f '{{.Size}}' "$image")
echo "sandbox image: $image is up to date ($((size / 1000000)) MB)"
