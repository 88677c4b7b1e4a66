#!/bin/sh
# run.sh VARIANT BINARY... - runs every unit test program, shows what failed, ends with one line of counts.
set -u
variant=$1
shift
# A report of a sanitizer must fail the test, never scroll by.
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export TSAN_OPTIONS=halt_on_error=1:exitcode=66:second_deadlock_stack=1
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for test in "$@"; do
    "$test" >"$log" 2>&1
    code=$?
    ok=$(grep -c '^\[       OK \]' "$log")
    bad=$(grep -c '^\[  FAILED  \] [a-z]' "$log")
    if [ $code -ne 0 ] || grep -q '^\[  SKIPPED \]' "$log"; then
        echo "--- ${test##*/} ($variant): exit $code"
        cat "$log"
        [ "$bad" -gt 0 ] || bad=1
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
done
echo "unit ($variant), ${#} programs:"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 0 ]
