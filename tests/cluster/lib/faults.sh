# shellcheck shell=bash
# What tests do to the bed.

is_host() { host_number "$1" >/dev/null; }

fault_kubelet() {
    local pid
    is_host "$2"
    pid="$(recorded "kubelet-$2")" || fail "the kubelet of $2 is not running"
    case $1 in
        pause) kill -STOP "$pid" ;;
        continue) kill -CONT "$pid" ;;
        *) fail "kubelet pause or continue, not $1" ;;
    esac
}

# At the host's only cable, in both directions, and for what is under way too. Pods of the host still reach each other.
fault_cut() {
    local host="$1" address protocol addresses kind
    shift
    is_host "$host"
    if (($# == 0)); then
        mapfile -t addresses < <(kube get pods -A -l app.kubernetes.io/name=versitygw \
            -o 'jsonpath={range .items[*]}{.status.podIP}{"\n"}{end}' | sed '/^$/d')
        set -- "${addresses[@]}"
        (($#)) || fail "there is no pod of the bucket (app.kubernetes.io/name=versitygw); name the addresses to keep"
    fi
    fault_heal "$host"
    {
        echo "*filter"
        echo ":WEIR-CUT - [0:0]"
        for protocol in udp tcp; do
            echo "-A WEIR-CUT -i eth0 -s $CONTROL_IP -p $protocol --sport 53 -j RETURN"
            echo "-A WEIR-CUT -o eth0 -d $CONTROL_IP -p $protocol --dport 53 -j RETURN"
        done
        for kind in "${NEIGHBOURS[@]}"; do echo "-A WEIR-CUT -p ipv6-icmp --icmpv6-type $kind -j RETURN"; done
        for address in "$@"; do
            echo "-A WEIR-CUT -i eth0 -s $address -j RETURN"
            echo "-A WEIR-CUT -o eth0 -d $address -j RETURN"
        done
        echo "-A WEIR-CUT -i eth0 -j DROP"
        echo "-A WEIR-CUT -o eth0 -j DROP"
        echo "-I INPUT -j WEIR-CUT"
        echo "-I OUTPUT -j WEIR-CUT"
        echo "-I FORWARD -j WEIR-CUT"
        echo "COMMIT"
    } | inside "$host" "$IPTABLES-restore" --noflush --wait || fail "could not cut off $host"
}

fault_heal() {
    is_host "$1"
    # shellcheck disable=SC2016
    inside "$1" bash -c '
        "$1" -n -w -L WEIR-CUT >/dev/null 2>&1 || exit 0
        for chain in INPUT OUTPUT FORWARD; do "$1" -w -D $chain -j WEIR-CUT || true; done
        "$1" -w -F WEIR-CUT && "$1" -w -X WEIR-CUT' heal "$IPTABLES"
}

fault_power() {
    local host="$2" pid
    is_host "$host"
    case $1 in
        off)
            pid="$(recorded "$host")" || fail "$host is off"
            kill_recorded KILL "$pid" "$(process_start "$pid")" "$host"
            ;;
        on)
            ! recorded "$host" >/dev/null || fail "$host is on"
            start_host "$host"
            start_kubelet "$host"
            start_proxy "$host" "$host" "$(host_ip "$host")"
            ;;
        *) fail "power off or on, not $1" ;;
    esac
}

fault_api() {
    [[ ${1:-} == restart ]] || fail "api restart"
    local pid
    pid="$(recorded kube-apiserver)" || fail "the API server is not running"
    kill_recorded KILL "$pid" "$(process_start "$pid")" kube-apiserver
    start_api
    wait_for 60 "the API server" api_ready || fail "it does not come back; see $LOGS/kube-apiserver.log"
}

fault_pod() {
    local what="$1" namespace="$2" pod="$3" host id
    host="$(kube -n "$namespace" get pod "$pod" -o 'jsonpath={.spec.nodeName}')"
    kube -n "$namespace" get pod "$pod" -o 'jsonpath={range .status.containerStatuses[*]}{.containerID}{"\n"}{end}' |
        while read -r id; do
            [[ -n $id ]] || continue
            case $what in
                freeze) set -- pause "${id#containerd://}" ;;
                thaw) set -- resume "${id#containerd://}" ;;
                kill) set -- kill --signal SIGKILL "${id#containerd://}" ;;
                *) fail "pod freeze, thaw or kill, not $what" ;;
            esac
            inside "$host" ctr -a /run/containerd/containerd.sock -n k8s.io tasks "$@" </dev/null || fail "could not $what $id"
        done
}
