#!/bin/sh
# Starts the service in the background, waits until it is healthy, and runs a first program through it.
# (Packages, engine, programs and image are there: `make up` sees to them first.)
set -eu
# shellcheck source-path=SCRIPTDIR source=common.sh
. "$(dirname "$0")/common.sh"

WAIT_SECONDS=90

# "ok" or "degraded"; nothing while the service does not answer
health() { request --max-time 5 "$URL/health" 2>/dev/null | jq -r '.status // empty' 2>/dev/null || true; }

reason() { request --max-time 5 "$URL/health" 2>&1 | jq -r '.reason // .' 2>/dev/null || echo "no answer"; }

fail() {
    echo
    [ -r "$LOG_FILE" ] && tail -n 20 "$LOG_FILE" | sed 's/^/    /'
    die "$* The log is $LOG_FILE. Correct what it says and run 'make up' again; 'make down' removes what is left."
}

start() {
    mkdir -p "$RUN_DIR" 2>/dev/null || die "cannot create $RUN_DIR. Run this with sudo, or set RUN_DIR."
    say "starting on $URL, data in $DATA_DIR, log in $LOG_FILE"
    settings_digest >"$SETTINGS_FILE"
    printf '%s\n' "$DATA_DIR" >"$DATA_DIR_FILE"
    # shellcheck disable=SC2016  # expanded by the inner shell
    setsid nohup sh -c 'echo $$ >"$1"; exec "$2" serve' sh "$PID_FILE" "$PROGRAM" >>"$LOG_FILE" 2>&1 </dev/null &
    printf 'carrel: waiting until it is healthy '
    begun=$(date +%s)
    while :; do
        sleep 0.5
        status=$(health)
        [ "$status" = ok ] && break
        waited=$(($(date +%s) - begun))
        [ $waited -lt 2 ] || running_pid >/dev/null || fail "The service ended."
        if [ $waited -ge $WAIT_SECONDS ] || { [ "$status" = degraded ] && [ $waited -ge 15 ]; }; then
            fail "The service is not healthy after $waited s: $(reason)."
        fi
        printf .
    done
    echo " ok"
}

first_program() {
    code='import platform; print("Python", platform.python_version(), "says: six times seven is", 6 * 7)'
    body=$(jq -n --arg code "$code" '{lang: "py", code: $code}')
    say "first program: $code"
    answer=$(request --max-time 60 -H 'Content-Type: application/json' -d "$body" "$URL/exec") ||
        fail "The first program got no answer."
    printf '%s' "$answer" | jq -e '.code == 0' >/dev/null || fail "The first program failed: $answer"
    say "its answer:    $(printf '%s' "$answer" | jq -r .stdout)"
}

if pid=$(running_pid) && [ "$(settings_digest)" != "$(cat "$SETTINGS_FILE" 2>/dev/null)" ]; then
    say "settings changed since it started: starting it again; sessions keep their sandboxes"
    stop_service "$pid"
fi
if pid=$(running_pid); then
    if [ "$(health)" != ok ]; then
        fail "The service runs (pid $pid) but is not healthy: $(reason)."
    fi
    say "already running on $URL (pid $pid)"
    if [ -n "$(find "$PROGRAM" -newer "$PID_FILE")" ]; then
        say "it was built again since it started: 'make down up' starts the new program"
    fi
else
    if curl -s --noproxy '*' -o /dev/null --max-time 2 "$URL/"; then
        die "something else answers on $URL. Stop it, or choose another port: PORT=8001 make up"
    fi
    start
fi
first_program

auth=
[ -z "${CODE_INTERPRETER_API_KEY:-}" ] || auth=" -H \"X-API-Key: \$CODE_INTERPRETER_API_KEY\""
cat <<END
carrel: ready. Try:
    curl -s$auth $URL/exec -H 'Content-Type: application/json' -d '{"lang": "py", "code": "print(6 * 7)"}'
The README has more. Stop with 'make down'; the log is $LOG_FILE.
END
