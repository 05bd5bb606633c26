# shellcheck shell=bash
# The bed's namespaces. The bed as a whole, `control`, is a process, network and mount namespace; each host is one more,
# nested in it, as a machine in its rack. Whatever is started, mounted or linked inside ends with the first process of
# `control`, and a host's with the first process of the host: that is also how a host loses its power.

# The first process of a namespace. It ends unless told within a minute that it has been recorded; as process 1 a
# shell reaps orphans.
# shellcheck disable=SC2016
INIT='read -t 60 -r _ <>"$1" || exit 1; trap "exit 0" TERM; sleep infinity & while :; do wait; done'

inside() { # inside PLACE COMMAND…: in the network, mounts and processes of `control` or of a host
    local place="$1" init
    shift
    init="$(recorded "$place")" || fail "$place is not running"
    nsenter --target "$init" --net --mount --pid --uts -- "$@"
}

# A command of this machine, its processes and folders, with the network and the names of `control`: tests, which both talk
# to the cluster and call the bed, whose record names processes as the machine does.
run_at_control() {
    local init
    init="$(recorded control)" || fail "there is no bed: $BED_SOURCE/bed up"
    export KUBECONFIG="$PKI/admin.kubeconfig" WEIR_BED="$BED_SOURCE/bed"
    # What tests must know of it.
    export WEIR_BED_IP_FAMILY="$IP_FAMILY" WEIR_BED_CLUSTER_DOMAIN="$CLUSTER_DOMAIN"
    # shellcheck disable=SC2016
    exec nsenter --target "$init" --net -- unshare --mount --propagation private \
        bash -c 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"' run "$BED/resolv.conf" "$@"
}

# The only child of a process, once there is one.
child_of() {
    local pid
    # Patient: a loaded machine may take seconds to fork.
    for _ in {1..1500}; do
        [[ -d /proc/$1 ]] || return 1
        # The file has no end of line.
        { read -r pid _ <"/proc/$1/task/$1/children"; } 2>/dev/null || true
        [[ -z ${pid:-} ]] || { echo "$pid"; return; }
        sleep 0.02
    done
    return 1
}

# What is started waits for a line in a pipe of its own, so that nothing lives on that is not in the record.
new_gate() {
    GATE="$BED/gate.$BASHPID.$((GATES += 1))"
    rm -f "$GATE"
    mkfifo "$GATE"
}
GATES=0

# record_and_open NAME PID
record_and_open() {
    record_process "$1" "$2"
    # Waits for the reader: a line that is written before would be lost.
    # shellcheck disable=SC2016
    timeout 60 bash -c 'echo recorded >"$1"' gate "$GATE" || fail "$1 does not go on after it was recorded; see $LOGS/$1.log"
    rm -f "$GATE"
}

start_control() {
    new_gate
    setsid unshare --net --pid --fork --kill-child --mount --propagation private --uts --mount-proc \
        bash -c "$INIT" weir-bed "$GATE" </dev/null >"$LOGS/control.log" 2>&1 9>&- &
    local pid
    pid="$(child_of $!)" || fail "no namespaces to be had; see $LOGS/control.log"
    record_and_open control "$pid"
    printf 'nameserver %s\nsearch default.svc.%s svc.%s %s\noptions ndots:5\n' \
        "$CONTROL_IP" "$CLUSTER_DOMAIN" "$CLUSTER_DOMAIN" "$CLUSTER_DOMAIN" >"$BED/resolv.conf"
    # Addresses of Services are anybody's until the proxy has seen the packet. The bridge is a cable, not a firewall.
    inside control bash -euc "
        hostname control
        mount --bind '$BED/resolv.conf' /etc/resolv.conf
        ip link set lo up
        ip link add uplink type bridge
        ip address add $CONTROL_IP/$UPLINK_BITS dev uplink ${ADDRESS_FLAGS[*]}
        ip link set uplink up
        ip route add $SERVICE_CIDR dev uplink
        sysctl -qw $FORWARDING=1
        sysctl -qw net.bridge.bridge-nf-call-$IPTABLES=0 2>/dev/null || true
    " >>"$LOGS/control.log" 2>&1 || fail "could not set up the network; see $LOGS/control.log"
}

# A host: its own /var (kept over a loss of power) and /run (not kept), and a cable to the bridge.
start_host_namespace() {
    local host="$1" control pid ip other
    control="$(recorded control)" || fail "the bed is not running"
    mkdir -p "$BED/$host/var/"{lib,log,tmp,cache}
    ln -sfn /run "$BED/$host/var/run"
    new_gate
    setsid nsenter --target "$control" --net --mount --pid --uts -- \
        unshare --net --pid --fork --kill-child --mount --propagation private --uts --mount-proc \
        bash -c "$INIT" "weir-bed $host" "$GATE" </dev/null >"$LOGS/$host.log" 2>&1 9>&- &
    pid="$(child_of $!)" && pid="$(child_of "$pid")" || fail "no namespaces to be had for $host; see $LOGS/$host.log"
    record_and_open "$host" "$pid"
    ip="$(host_ip "$host")"
    # The namespaces are named by a process as the bed sees it, so the cable is laid from outside.
    nsenter --target "$control" --net -- ip link add "to-$host" type veth peer name eth0 netns "$pid" &&
        nsenter --target "$control" --net -- ip link set "to-$host" master uplink up &&
        nsenter --target "$control" --net -- ip route replace "$(host_pod_cidr "$host")" via "$ip" ||
        fail "could not connect $host"
    {
        echo "hostname $host"
        echo "mount --bind '$BED/$host/var' /var"
        echo "mount -t tmpfs -o mode=755 run /run"
        # As on any host, for pods that share mounts with it; with nobody outside of it.
        echo "mount --make-rshared /"
        echo "ip link set lo up; ip link set eth0 up"
        echo "ip address add $ip/$UPLINK_BITS dev eth0 ${ADDRESS_FLAGS[*]}"
        echo "ip route add default via $CONTROL_IP"
        for other in "${HOSTS[@]}"; do
            [[ $other == "$host" ]] || echo "ip route add $(host_pod_cidr "$other") via $(host_ip "$other")"
        done
        echo "sysctl -qw $FORWARDING=1"
    } >"$BED/$host/network.sh"
    inside "$host" bash -eu "$BED/$host/network.sh" >>"$LOGS/$host.log" 2>&1 || fail "could not set up $host; see $LOGS/$host.log"
}

# start PLACE NAME COMMAND…: a daemon, recorded as NAME, its output in $LOGS/NAME.log. The place `door` is in the
# network of whoever runs the bed, and ends with it all the same. The daemon becomes a child of the place's first process:
# nsenter itself must not stay its parent, for it stops when its child is stopped and would not see it end.
start() {
    local place="$1" name="$2" init pid net=--net
    shift 2
    [[ $place != door ]] || { place=control; net=; }
    init="$(recorded "$place")" || fail "$place is not running"
    new_gate
    # shellcheck disable=SC2016,SC2086
    setsid nsenter --target "$init" $net --mount --pid --uts -- \
        bash -c 'go="$1"; shift; "$@" & read -t 60 -r _ <>"$go"' start "$GATE" "$@" \
        </dev/null >>"$LOGS/$name.log" 2>&1 9>&- &
    pid="$(child_of $!)" && pid="$(child_of "$pid")" || fail "$name did not start; see $LOGS/$name.log"
    record_and_open "$name" "$pid"
}
