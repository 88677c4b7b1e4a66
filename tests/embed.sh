#!/bin/sh
# embed.sh NAME FILE - prints FILE as a C array `static const char NAME[]`, NUL-terminated.
set -eu
printf '/* made from %s */\nstatic const char %s[] = {\n' "$2" "$1"
od -An -v -tu1 "$2" | awk '{ for (i = 1; i <= NF; i++) printf "%s,", $i; print "" }'
printf '0 };\n'
