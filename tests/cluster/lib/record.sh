# shellcheck shell=bash
# Writes down what the bed starts or makes outside of its folder, before anything else can go wrong, so that it can be
# undone by what is written and never by name, after a crash too.
#
# A line is `process NAME PID START` (START: ticks since boot, as the kernel has it, so that a reused pid is never taken
# for ours) or `cgroup PATH`. Mounts, network links, addresses, routes and packet filter rules need no line: they are in
# namespaces that end with the first process of the record.

# Ticks since boot at which a process started; fails where there is none.
process_start() {
    local stat
    stat="$(cat "/proc/$1/stat" 2>/dev/null)" || return 1
    # The name, in brackets, may hold anything; what follows it is numbers.
    read -ra stat <<<"${stat##*) }"
    # A zombie has ended, and what it had open is closed, once its other threads have.
    [[ ${stat[0]} != Z || ${stat[17]} -gt 1 ]] || return 1
    echo "${stat[19]}"
}

record_process() {
    local name="$1" pid="$2" start
    start="$(process_start "$pid")" || fail "$name ended at once; see $LOGS/$name.log"
    printf 'process %s %s %s\n' "$name" "$pid" "$start" >>"$RECORD"
}

record_cgroup() { printf 'cgroup %s\n' "$1" >>"$RECORD"; }

# The pid of the process last recorded under a name, if that very process still runs.
recorded() {
    local name="$1" pid start
    [[ -f $RECORD ]] || return 1
    read -r pid start < <(awk -v name="$name" '$1 == "process" && $2 == name { at = $3 " " $4 } END { print at }' "$RECORD")
    [[ -n $pid && $(process_start "$pid") == "$start" ]] || return 1
    echo "$pid"
}

# A record of before the machine's last boot speaks of processes that are gone.
record_begin() {
    mkdir -p "$BED"
    printf 'boot %s\n' "$(cat /proc/sys/kernel/random/boot_id)" >"$RECORD"
}
record_is_of_this_boot() { [[ $(head -1 "$RECORD" 2>/dev/null) == "boot $(cat /proc/sys/kernel/random/boot_id)" ]]; }

# kill_recorded SIGNAL PID START NAME: and waits until it has ended.
kill_recorded() {
    [[ $(process_start "$2") == "$3" ]] || return 0
    kill "-$1" "$2" 2>/dev/null || true
    wait_for 20 "$4 (process $2) to end" ended "$2" "$3" || fail "$4 (process $2) does not end"
}
ended() { [[ $(process_start "$1") != "$2" ]]; }

# Undoes all that is recorded, last first, and forgets it. Safe to run again after having been broken off.
undo_record() {
    [[ -f $RECORD ]] || return 0
    local kind a b c
    if record_is_of_this_boot; then
        # Ending the first process of a namespace ends all in it.
        while read -r kind a b c; do
            [[ $kind == process ]] || continue
            kill_recorded KILL "$b" "$c" "$a"
        done <"$RECORD"
        while read -r kind a b c; do
            [[ $kind == cgroup && -d $a ]] || continue
            wait_for 20 "the processes in $a to end" remove_cgroup "$a" || fail "cannot remove the cgroup $a"
        done <"$RECORD"
    fi
    rm -f "$RECORD"
}
remove_cgroup() {
    find "$1" -depth -type d -exec rmdir {} + 2>/dev/null
    [[ ! -d $1 ]]
}
