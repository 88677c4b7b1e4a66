#!/bin/sh
# deps.sh [test]: installs the Debian packages that are missing, if any. "test" adds what the tests and checks need.
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

BUILD="gcc make pkg-config libc6-dev libmicrohttpd-dev libjansson-dev libzmq3-dev libarchive-dev libsqlite3-dev
    nettle-dev librhonabwy-dev libcurl4-openssl-dev"
RUN="ca-certificates curl file jq mmdebstrap"
TEST="libcmocka-dev clang libclang-rt-dev llvm clang-tidy clang-format cppcheck valgrind shellcheck python3 python3-pytest git"

wanted="$BUILD $RUN"
[ "${1:-}" = test ] && wanted="$wanted $TEST"

command -v apt-get >/dev/null || die "this machine has no apt. Install what these Debian packages contain: $wanted"

missing=
for package in $wanted; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
    say "packages: all there"
    exit 0
fi
say "packages: installing$missing"
install() {
    # shellcheck disable=SC2086  # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
}
as_root apt-get update -q || say "apt-get update failed; trying with the package lists there are"
install || die "apt could not install:$missing. The lines above say why."
