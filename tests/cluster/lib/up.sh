# shellcheck shell=bash
# The order in which the bed starts and ends.

# Runs a function in the background with its failure kept for `join`.
declare -A JOBS=()
fork() { local name="$1"; shift; "$@" & JOBS[$name]=$!; }
join() {
    local name
    for name in "$@"; do
        wait "${JOBS[$name]}" || fail "$name failed"
        unset "JOBS[$name]"
    done
}

bed_is_up() { recorded control >/dev/null && recorded kube-apiserver >/dev/null && api_ready >/dev/null 2>&1; }

# One bed, one command at a time that starts or ends it.
alone() {
    mkdir -p "$CACHE"
    exec 9>"$CACHE/bed.lock"
    flock -n 9 || { say "another bed command is at work; waiting for it"; flock 9; }
}

# All that is made once: packages, programs, images that are not Weir's.
bed_tools() {
    need_root
    alone
    mkdir -p "$LOGS"
    need_packages
    need_tools kubernetes etcd helm coredns registry
    need_base_images
}

bed_up() {
    need_root
    alone
    mkdir -p "$LOGS"
    # Before the tools, whose links are in the folder that goes.
    if [[ -f $RECORD ]] && ! bed_is_up; then
        say "removing what an earlier bed left behind"
        bed_remove
    fi
    bed_tools
    if [[ -f $RECORD ]]; then say "the bed is up already: the hosts ${HOSTS[*]}, $IP_FAMILY, domain $CLUSTER_DOMAIN"; else bed_start; fi
}

bed_start() {
    local host part
    rm -rf "$LOGS" "$BED/etcd"
    mkdir -p "$LOGS"
    record_begin
    keep_settings
    make_cgroups
    start_control
    make_pki
    say "starting Kubernetes $KUBERNETES_VERSION with the hosts ${HOSTS[*]}, $IP_FAMILY, domain $CLUSTER_DOMAIN"
    start_api
    for host in "${HOSTS[@]}"; do
        start_host "$host"
        fork "images-$host" load "$host" "$PAUSE_ARCHIVE" "$S3_ARCHIVE"
    done
    wait_for 120 "the API server" api_ready || fail "the API server does not become ready; see $LOGS/kube-apiserver.log"
    say "the API server is ready"
    start_controllers
    start_dns
    start_door
    wait_for 30 "the API server to take objects" kube apply -f "$BED_SOURCE/config/control.yaml" || fail "it takes none"
    for host in "${HOSTS[@]}"; do start_kubelet "$host"; done
    for host in "${HOSTS[@]}"; do fork "volumes-$host" refill_volumes "$host"; done
    for host in "${HOSTS[@]}"; do
        wait_for 60 "$host to register" registered "$host" || fail "$host does not register; see $LOGS/kubelet-$host.log"
        start_proxy "$host" "$host" "$(host_ip "$host")"
    done
    # Whoever runs a command in `control` reaches Services too. The proxy wants to be of some node.
    start_proxy control "${HOSTS[0]}" "$CONTROL_IP"
    for host in "${HOSTS[@]}"; do
        wait_for 90 "$host to be ready" ready "$host" || fail "$host does not become ready; see $LOGS/kubelet-$host.log"
        join "images-$host" "volumes-$host"
    done
    say "the bed is up: $(kube get nodes --no-headers | awk '{ print $1, $2 }' | paste -sd ',' | sed 's/,/, /g')"
}

# All but the tools and the archives of images.
bed_remove() {
    undo_record
    rm -rf "$BED"
    mkdir -p "$LOGS"
}

bed_down() {
    need_root
    alone
    undo_record
    rm -rf "$BED" "$CACHE/bed.lock"
    say "the bed is gone; its programs and images stay in $TOOLS"
}

bed_status() {
    bed_is_up || { echo "the bed is not up"; return 3; }
    awk '$1 == "process" { print $2 }' "$RECORD" | sort -u | while read -r name; do
        if pid="$(recorded "$name")"; then echo "$name: process $pid"; else echo "$name: ended"; fi
    done
    kube get nodes,pods -A -o wide
}
