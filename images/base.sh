#!/bin/sh
# Finds or makes the base image of the sandbox and prints its name on standard output.
#
# In this order: $BASE_IMAGE if set; debian:trixie-slim if the engine has it or can pull it; else a minimal
# Debian 13 made here from Debian's own packages, with the mirror, proxy and keys of this machine's apt.
# Progress goes to standard error.
set -eu

RELEASE=trixie
PUBLIC_IMAGE=debian:$RELEASE-slim
OWN_IMAGE=carrel-base:$RELEASE
PULL_SECONDS=${PULL_SECONDS:-60}

say() { echo "base image: $*" >&2; }
die() { say "$*"; exit 1; }
have_image() { docker image inspect "$1" >/dev/null 2>&1; }

# One line per enabled binary source of this machine: "URI SUITE KEYFILE" (KEYFILE "-" when none is named).
# Knows one-line .list files and deb822 .sources files.
apt_sources() {
    etc=$(apt-config shell DIR Dir::Etc/d | sed -n "s/^DIR='\(.*\)'$/\1/p")
    etc=${etc:-/etc/apt/}
    for file in "$etc/sources.list" "$etc"/sources.list.d/*.list; do
        [ -r "$file" ] && one_line_sources "$file"
    done
    for file in "$etc"/sources.list.d/*.sources; do
        [ -r "$file" ] && deb822_sources "$file"
    done
    return 0
}

one_line_sources() {
    sed 's/#.*//' "$1" | awk '
        $1 != "deb" { next }
        {
            key = "-"; at = 2
            if ($2 ~ /^\[/) {
                for (; at <= NF; at++) {
                    option = $at
                    gsub(/[][]/, "", option)
                    if (sub(/^signed-by=/, "", option)) key = option
                    if ($at ~ /\]$/) { at++; break }
                }
            }
            print $at, $(at + 1), key
        }'
}

deb822_sources() {
    awk '
        function flush(   u, s, i, j, nu, ns) {
            if (types ~ /(^| )deb( |$)/ && tolower(enabled) != "no") {
                nu = split(uris, u, " "); ns = split(suites, s, " ")
                for (i = 1; i <= nu; i++)
                    for (j = 1; j <= ns; j++)
                        print u[i], s[j], (key ~ /^\// ? key : "-")
            }
            types = uris = suites = key = enabled = field = ""
        }
        /^#/ { next }
        /^[ \t]*$/ { flush(); next }
        {
            line = $0
            if (line !~ /^[ \t]/) {
                field = tolower(substr(line, 1, index(line, ":") - 1))
                line = substr(line, index(line, ":") + 1)
            }
            gsub(/^[ \t]+|[ \t]+$/, "", line)
            if (field == "types") types = types line
            else if (field == "uris") uris = uris " " line
            else if (field == "suites") suites = suites " " line
            else if (field == "signed-by") key = key line
            else if (field == "enabled") enabled = line
        }
        END { flush() }' "$1"
}

# apt's "mirror+file:/list" names a file of mirrors: the first one is as good as any.
real_uri() {
    case $1 in
    mirror+file:*)
        file=${1#mirror+file:}
        file=/${file#"${file%%[!/]*}"}
        awk '!/^#/ && NF { print $1; exit }' "$file"
        ;;
    *) echo "$1" ;;
    esac
}

apt_proxy() {
    case $1 in
    https:*) apt-config dump Acquire::https::Proxy --format '%v%n' ;;
    *) apt-config dump Acquire::http::Proxy --format '%v%n' ;;
    esac | grep -v '^$' | head -n 1 || true
}

has_suite() {
    proxy=$(apt_proxy "$1")
    [ "$proxy" = DIRECT ] && proxy=
    curl -fsIL --max-time 20 ${proxy:+--proxy "$proxy"} -o /dev/null "${1%/}/dists/$2/InRelease"
}

# The apt options that decide whether a mirror can be used at all, as "Name value;" lines.
apt_options() {
    apt-config dump --format '%f "%v";%n' | grep -iE \
        '^Acquire::(http|https)::(Proxy|Verify-Peer)[ :]|^Acquire::(Check-Valid-Until|Check-Date|Retries) ' || true
}

make_own() {
    for tool in mmdebstrap curl apt-config; do
        command -v "$tool" >/dev/null || die "$tool is missing: run 'make deps' first"
    done
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT INT TERM

    apt_sources >"$work/known"
    if [ -n "${DEBIAN_MIRROR:-}" ]; then
        echo "$DEBIAN_MIRROR $RELEASE -" >>"$work/known"
        main=$DEBIAN_MIRROR
        has_suite "$main" $RELEASE || die "DEBIAN_MIRROR=$main does not serve Debian $RELEASE"
    else
        main=
    fi
    security=
    while read -r uri _suite _key; do
        uri=$(real_uri "$uri")
        case $uri in http:* | https:*) ;; *) continue ;; esac
        grep -qxF "$uri" "$work/tried" 2>/dev/null && continue
        echo "$uri" >>"$work/tried"
        if [ -z "$main" ] && has_suite "$uri" $RELEASE; then main=$uri; fi
        if [ -z "$security" ] && has_suite "$uri" $RELEASE-security; then security=$uri; fi
    done <"$work/known"
    [ -n "$main" ] || die "$PUBLIC_IMAGE cannot be pulled, and no mirror in this machine's apt sources serves
Debian $RELEASE. Tried: $(tr '\n' ' ' <"$work/tried" 2>/dev/null)
Set DEBIAN_MIRROR=<url of a Debian mirror>, or load an image and set BASE_IMAGE=<its name>."

    {
        echo "deb $main $RELEASE main"
        if has_suite "$main" $RELEASE-updates; then echo "deb $main $RELEASE-updates main"; fi
        if [ -n "$security" ]; then echo "deb $security $RELEASE-security main"; fi
    } >"$work/sources.list"
    say "making Debian $RELEASE from these sources of this machine (about a minute):"
    sed 's/^/    /' "$work/sources.list" >&2

    # The options go into the image as well: later "apt-get" calls of the build meet the same mirror.
    apt_options >"$work/apt.conf"
    set -- --variant=minbase --format=tar --aptopt="$work/apt.conf" \
        --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-include=/usr/share/locale/locale.alias' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright'
    for key in $(awk '$3 != "-" { print $3 }' "$work/known" | sort -u) /usr/share/keyrings/debian-archive-*.gpg; do
        [ -r "$key" ] && set -- "$@" --keyring="$key"
    done
    # A mirror that signs with a key of its own: the image must know that key too.
    # shellcheck disable=SC2013  # paths of keys hold no blanks
    for key in $(awk '$3 != "-" { print $3 }' "$work/known" | grep -v debian-archive | sort -u); do
        case $key in *.gpg | *.asc) [ -r "$key" ] && set -- "$@" --customize-hook="copy-in '$key' /etc/apt/trusted.gpg.d" ;; esac
    done
    case "$main $security" in
    *https:*)
        set -- "$@" --include=ca-certificates
        for ca in /usr/local/share/ca-certificates/*.crt; do
            [ -r "$ca" ] && set -- "$@" --customize-hook="copy-in '$ca' /usr/local/share/ca-certificates" \
                --customize-hook="chroot \"\$1\" update-ca-certificates"
        done
        ;;
    esac
    # shellcheck disable=SC2016  # $1 is the hook's own argument
    mmdebstrap "$@" --customize-hook='rm -rf "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/* "$1"/var/log/*' \
        $RELEASE "$work/base.tar" - <"$work/sources.list" >&2 || die "mmdebstrap failed (see above)"
    docker import -c 'CMD ["/bin/bash"]' "$work/base.tar" "$OWN_IMAGE" >/dev/null
    say "made $OWN_IMAGE"
}

docker version >/dev/null 2>&1 || die "the Docker engine does not answer: is it running, and may you use its socket?"

if [ -n "${BASE_IMAGE:-}" ]; then
    have_image "$BASE_IMAGE" || docker pull "$BASE_IMAGE" >&2 || die "BASE_IMAGE=$BASE_IMAGE is neither here nor can it be pulled"
    echo "$BASE_IMAGE"
elif have_image $PUBLIC_IMAGE; then
    echo $PUBLIC_IMAGE
elif have_image $OWN_IMAGE; then
    echo $OWN_IMAGE
elif say "pulling $PUBLIC_IMAGE" && timeout "$PULL_SECONDS" docker pull $PUBLIC_IMAGE >/dev/null 2>&1; then
    echo $PUBLIC_IMAGE
else
    say "$PUBLIC_IMAGE cannot be pulled"
    make_own
    echo $OWN_IMAGE
fi
