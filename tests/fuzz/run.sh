#!/bin/sh
# run.sh SECONDS BINARY... - fuzzes each target for that long over its corpus in tests/fuzz/corpus/<target>/.
set -u
seconds=$1
shift
failed=0
for target in "$@"; do
    name=${target##*/}
    work=$(mktemp -d)
    corpus=tests/fuzz/corpus/$name
    [ -d "$corpus" ] || corpus=
    # shellcheck disable=SC2086
    if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$name-" "$work" $corpus >"$work.log" 2>&1; then
        echo "$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work.log") inputs in $seconds s, no finding"
    else
        failed=$((failed + 1))
        tail -40 "$work.log"
        echo "$name: FAILED"
    fi
    rm -rf "$work" "$work.log"
done
echo "fuzz:"
echo "$(($# - failed)) passed, $failed failed"
[ $failed -eq 0 ]
