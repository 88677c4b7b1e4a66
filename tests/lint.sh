#!/bin/sh
# lint.sh CFLAGS - what a compiler does not check: layers, one include site per foreign library, banned calls, sizes,
# weak tests; then clang-tidy and cppcheck.
# shellcheck disable=SC2044,SC2013,SC2016  # our file names have no white space
set -u
bad=0
fail() {
    echo "lint: $1"
    bad=1
}

# ---- includes point down only: a folder and what it may include beside itself and common/
below() {
    case $1 in
    common) echo "" ;;
    runner) echo "common" ;;
    orchestrator/db | orchestrator/http) echo "common" ;;
    orchestrator/access) echo "common orchestrator/config.h orchestrator/db orchestrator/http" ;;
    orchestrator/engine) echo "common orchestrator/http" ;;
    orchestrator/files) echo "common orchestrator/db orchestrator/http" ;;
    orchestrator/session) echo "common orchestrator/config.h orchestrator/files orchestrator/engine orchestrator/access orchestrator/db orchestrator/http" ;;
    orchestrator/api) echo "common orchestrator/config.h orchestrator/app.h orchestrator/session orchestrator/files orchestrator/engine orchestrator/access orchestrator/db orchestrator/http" ;;
    orchestrator/cli) echo "common orchestrator" ;;
    orchestrator) echo "common orchestrator/config.h orchestrator/app.h orchestrator/cli" ;;
    esac
}
for dir in common runner orchestrator orchestrator/*/; do
    dir=${dir%/}
    depth=1
    [ "$dir" = common ] && depth=2 # common/json/ belongs to common
    for file in $(find "$dir" -maxdepth $depth -name '*.[ch]'); do
        for inc in $(sed -n 's,^#include "\([^"]*\)".*,\1,p' "$file"); do
            ok=no
            case $inc in "$dir"/* | *_sql.h) ok=yes ;; esac
            for allowed in $(below "$dir"); do
                case $inc in "$allowed"/* | "$allowed") ok=yes ;; esac
            done
            [ $ok = yes ] || fail "$file includes $inc, which does not stand below $dir"
        done
    done
done

# ---- one include site per foreign library
while read -r header owner; do
    for file in $(grep -rl "#include <$header" common orchestrator runner); do
        [ "$file" = "$owner" ] || fail "$file includes <$header>; only $owner may"
    done
done <<'OWNERS'
microhttpd.h orchestrator/http/server_mhd.c
curl/curl.h orchestrator/http/client.c
sqlite3.h orchestrator/db/db.c
archive.h orchestrator/files/archive.c
rhonabwy.h orchestrator/access/jwt.c
zmq.h runner/kernel.c
OWNERS

# ---- banned calls, each with the one place that may
ban() { # pattern, why, allowed file
    found=$(grep -rnE "(^|[^_a-zA-Z0-9\"])($1)[[:space:]]*\(" common orchestrator runner --include='*.[ch]' |
        sed 's,/\*.*,,' | grep -E "(^|[^_a-zA-Z0-9\"])($1)[[:space:]]*\(" |
        grep -vE "^(${3:-none}):" | grep -vE '^[^:]*:[0-9]+: *(\*|//)')
    [ -z "$found" ] || fail "$2:
$found"
}
ban 'atoi|atol|atof|sprintf|vsprintf|strcpy|strcat|strncpy|strncat|strtok|gets|alloca|system|popen|mktemp|tmpnam' 'banned call'
ban 'strtol|strtoul|strtoll|strtoull|strtod' 'numbers are parsed in one place' 'orchestrator/config.c|common/number.c'
ban 'strtoimax|strtoumax' 'numbers are parsed in one place' 'orchestrator/config.c|common/number.c'
ban 'getenv|secure_getenv' 'the environment is read in config.c' 'orchestrator/config.c|runner/main.c'
ban 'exit' 'exit outside main'
opens=$(grep -rnE '(^|[^_a-zA-Z0-9])(open|openat|socket|accept4|pipe2|eventfd|signalfd|epoll_create1)[[:space:]]*\(' \
    common orchestrator runner --include='*.c' | grep -vE 'CLOEXEC|OPEN_|_FLAGS|->open\(|^[^:]*:[0-9]+: *(/?\*|//)|static ')
[ -z "$opens" ] || fail "a descriptor without CLOEXEC on the same line:
$opens"

# ---- sizes
for file in $(find common orchestrator runner -name '*.[ch]'); do
    lines=$(wc -l <"$file")
    [ "$lines" -le 600 ] || fail "$file has $lines lines; the cap is 600"
done

# ---- tests that cannot fail
weak=$(grep -rnE 'assert_true\((1|true)\)|skip\(\)|@unittest.skip|pytest.skip|xfail' tests e2e images --include='*.c' --include='*.py' --include='*.mjs')
[ -z "$weak" ] || fail "tests that cannot fail or are skipped:
$weak"
todo=$(grep -rnE 'TODO|FIXME|\bXXX\b|not implemented' common orchestrator runner --include='*.[ch]')
[ -z "$todo" ] || fail "unfinished places:
$todo"

# ---- the analysers
sources=$(find common orchestrator runner -name '*.c')
# shellcheck disable=SC2086
tidy=$(echo $sources | xargs -P "$(nproc)" -n 3 sh -c 'flags=$0; exec clang-tidy --quiet --warnings-as-errors="*" "$@" -- $flags' "$1" 2>/dev/null) ||
    fail "clang-tidy:
$tidy"
# shellcheck disable=SC2086
cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 --enable=warning,portability -D_GNU_SOURCE -I. \
    --suppress=missingIncludeSystem --suppress=unknownMacro --suppress=nullPointerOutOfMemory $sources || fail "cppcheck"

shellcheck compose/local/*.sh images/*.sh tests/*.sh tests/unit/run.sh tests/fuzz/run.sh .ci/run || fail "shellcheck"

[ $bad -eq 0 ] && echo "lint: passed"
exit $bad
