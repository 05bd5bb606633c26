# shellcheck shell=bash
# Progress and failure, on stderr, with the seconds since the start.

SAY_AS="${SAY_AS:-bed}"

say() { printf '%s: %4ds  %s\n' "$SAY_AS" "$SECONDS" "$*" >&2; }
fail() { say "FAILED: $*"; exit 1; }

# wait_for SECONDS WHAT COMMAND…: until the command succeeds; says every ten seconds what is waited for.
wait_for() {
    local deadline=$((SECONDS + $1)) what="$2" said=$SECONDS
    shift 2
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || { say "gave up waiting for $what"; return 1; }
        ((SECONDS - said < 10)) || { said=$SECONDS; say "  … still waiting for $what"; }
        sleep 0.2
    done
}
