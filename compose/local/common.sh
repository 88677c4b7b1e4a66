# shellcheck shell=sh disable=SC2034
# Read by the other scripts (". common.sh"): settings, and words for people. POSIX sh.
# Settings come from the environment; what it does not name may stand in .env beside the Makefile.

ROOT=$(cd "$(dirname "$0")/../.." && pwd -P)

# printf: some shells' echo turns the \n of a JSON text into line ends
say() { printf 'carrel: %s\n' "$*"; }
die() {
    printf 'carrel: %s\n' "$*" >&2
    exit 1
}

# KEY=VALUE lines; "export", comments, blanks and one pair of quotes are understood. Nothing in it is executed.
load_env_file() {
    [ -r "$1" ] || return 0
    while IFS= read -r line || [ -n "$line" ]; do
        line=${line#"${line%%[![:space:]]*}"}
        line=${line%"${line##*[![:space:]]}"}
        line=${line#export }
        case $line in '' | '#'* | [!A-Za-z_]*) continue ;; *=*) ;; *) continue ;; esac
        key=${line%%=*}
        value=${line#*=}
        case $key in *[!A-Za-z0-9_]*) continue ;; esac
        case $value in
        \"*\" | \'*\')
            value=${value#?}
            value=${value%?}
            ;;
        \"* | \'*) ;;
        *) value=${value%%[[:space:]]#*} ;;
        esac
        eval "[ \"\${$key+set}\" = set ]" || export "$key=$value"
    done <"$1"
}

load_env_file "$ROOT/.env"
PORT=${PORT:-8000}
HOST=${HOST:-127.0.0.1}
case $PORT in '' | *[!0-9]* | 0) die "PORT must be a number from 1 to 65535, not '$PORT'" ;; esac
if [ -z "${DATA_DIR:-}" ]; then
    DATA_DIR=/var/lib/carrel
    [ "$PORT" = 8000 ] || DATA_DIR=/var/lib/carrel-$PORT
fi
SANDBOX_IMAGE=${SANDBOX_IMAGE:-carrel-sandbox:latest}
if [ -z "${RUN_DIR:-}" ]; then
    RUN_DIR=/run/carrel-$PORT
    [ "$(id -u)" = 0 ] || RUN_DIR=${XDG_RUNTIME_DIR:-/tmp}/carrel-$PORT
fi
export PORT HOST DATA_DIR SANDBOX_IMAGE

PROGRAM=$ROOT/build/release/carrel
PID_FILE=$RUN_DIR/pid
LOG_FILE=$RUN_DIR/log
SETTINGS_FILE=$RUN_DIR/settings    # a digest of the settings the service was started with: they are read once
DATA_DIR_FILE=$RUN_DIR/data-dir    # where its data is, for `make down` in a shell that does not know

case $HOST in 0.0.0.0 | '') ADDRESS=127.0.0.1 ;; :: | '[::]') ADDRESS='[::1]' ;; *:*) ADDRESS="[$HOST]" ;; *) ADDRESS=$HOST ;; esac
URL=http://$ADDRESS:$PORT

# The key goes to curl on its standard input: other users of the machine can read command lines.
request() {
    if [ -n "${CODE_INTERPRETER_API_KEY:-}" ]; then
        printf 'header = "X-API-Key: %s"\n' "$CODE_INTERPRETER_API_KEY"
    fi | curl -sS --noproxy '*' -K - "$@"
}

# The pid of this instance's service, if it runs: a pid file alone may name anything by now.
running_pid() {
    [ -r "$PID_FILE" ] || return 1
    pid=$(cat "$PID_FILE")
    case $pid in '' | *[!0-9]*) return 1 ;; esac
    exe=$(readlink "/proc/$pid/exe" 2>/dev/null) || return 1
    [ "${exe% (deleted)}" = "$PROGRAM" ] || return 1
    echo "$pid"
}

# A digest of every setting the program knows, as this shell would give them to it.
settings_digest() {
    # shellcheck disable=SC2016  # a pattern
    "$PROGRAM" config | sed -n 's/^| `\([A-Z_]*\)` .*/\1/p' | while read -r name; do
        eval "printf '%s=%s\\n' \"\$name\" \"\${$name-}\""
    done | sha256sum | cut -d' ' -f1
}

# Ends the service by its pid; its sandboxes stay. Waits until it is gone.
stop_service() {
    kill -TERM "$1"
    tenths=0
    while running_pid >/dev/null; do
        sleep 0.1
        tenths=$((tenths + 1))
        if [ $tenths -ge 150 ]; then
            say "it did not stop within 15 s: killed"
            kill -KILL "$1" 2>/dev/null || true
            sleep 0.2
            break
        fi
    done
}

# Runs a command as root, through sudo where that is needed.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "root is needed for: $*. Run this as root, or install sudo."
    fi
}
