# shellcheck shell=bash
# What the machine must have, and what kind of cgroups it has.

# Debian's packages, by a file of each.
PACKAGES=(
    containerd:/usr/bin/containerd runc:/usr/sbin/runc containernetworking-plugins:/usr/lib/cni/ptp
    buildah:/usr/bin/buildah iptables:/usr/sbin/iptables iproute2:/sbin/ip conntrack:/usr/sbin/conntrack
    socat:/usr/bin/socat openssl:/usr/bin/openssl ca-certificates:/etc/ssl/certs/ca-certificates.crt
    util-linux:/usr/bin/nsenter procps:/sbin/sysctl jq:/usr/bin/jq curl:/usr/bin/curl
)

need_root() {
    ((EUID == 0)) || fail "the test bed makes namespaces and mounts: run it as root, or use a cluster of yours with CONTEXT=… REGISTRY=…"
}

# What no package can bring. Programs that are not there yet are not asked.
bed_check() {
    local missing=()
    if ((EUID != 0)); then
        missing+=("root, to make namespaces and mounts")
    else
        lacks "network, process and mount namespaces" unshare --net --pid --fork --mount --propagation private --mount-proc true
        # shellcheck disable=SC2016
        lacks "the right to mount overlayfs" unshare --mount --propagation private bash -c '
            mount -t tmpfs check /mnt && cd /mnt && mkdir lower upper work all &&
            mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work check all'
        ! command -v ip >/dev/null || {
            lacks "veth links" unshare --net ip link add check-a type veth peer name check-b
            lacks "${IP_FAMILY/ip/IP} in its kernel" unshare --net ip address add "$CONTROL_IP/$UPLINK_BITS" dev lo
        }
        ! command -v "$IPTABLES" >/dev/null || lacks "$IPTABLES with nat" unshare --net "$IPTABLES" -w -t nat -S
        lacks "cgroups that may be written to" may_make_cgroups
        command -v apt-get >/dev/null || lacks_packages
    fi
    ((${#missing[@]} == 0)) && return
    printf 'this machine cannot run the Kubernetes test bed. Missing:\n' >&2
    printf '  - %s\n' "${missing[@]}" >&2
    return 1
}
lacks() {
    local what="$1" said
    shift
    said="$("$@" 2>&1)" || missing+=("$what${said:+ (${said##*$'\n'})}")
}
lacks_packages() {
    local entry
    for entry in "${PACKAGES[@]}"; do [[ -e ${entry#*:} ]] || missing+=("what Debian calls ${entry%%:*}"); done
}
may_make_cgroups() {
    local top=/sys/fs/cgroup
    [[ $(cgroup_version) == v2 ]] || top=/sys/fs/cgroup/memory
    mkdir "$top/$CGROUP-check.$$" && rmdir "$top/$CGROUP-check.$$"
}

need_packages() {
    local entry missing=()
    for entry in "${PACKAGES[@]}"; do [[ -e ${entry#*:} ]] || missing+=("${entry%%:*}"); done
    # The static one cannot look up names.
    ldd /bin/busybox >/dev/null 2>&1 || missing+=(busybox)
    command -v go >/dev/null || missing+=(golang-go)
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || fail "please install what Debian calls ${missing[*]}"
    say "installing ${missing[*]}"
    apt-get update -q >>"$LOGS/apt.log" 2>&1 || true
    # None of them may start a service of the machine's own: the bed runs its own containerd.
    local guard=/usr/sbin/policy-rc.d guarded=0
    [[ -e $guard ]] || { printf '#!/bin/sh\nexit 101\n' >"$guard"; chmod +x "$guard"; guarded=1; }
    local ok=1
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}" >>"$LOGS/apt.log" 2>&1 || ok=0
    ((guarded == 0)) || rm -f "$guard"
    ((ok)) || { tail -5 "$LOGS/apt.log" >&2; fail "could not install ${missing[*]}; see $LOGS/apt.log"; }
}

# v1 (also where v2 is mounted beside it: the controllers are what counts) or v2.
cgroup_version() {
    if [[ -f /sys/fs/cgroup/cgroup.controllers ]]; then echo v2
    elif [[ -d /sys/fs/cgroup/memory ]]; then echo v1
    else fail "no cgroups at /sys/fs/cgroup: neither v1 nor v2"
    fi
}

# Makes the bed's cgroup in every hierarchy that holds controllers, and one below it for each host.
make_cgroups() {
    local top host
    if [[ $(cgroup_version) == v2 ]]; then
        say "cgroups: v2 (the bed has been tried on v1 only)"
        top="/sys/fs/cgroup/$CGROUP"
        record_cgroup "$top"
        enable_controllers /sys/fs/cgroup
        mkdir -p "$top"
        enable_controllers "$top"
        for host in "${HOSTS[@]}"; do mkdir -p "$top/$host"; enable_controllers "$top/$host"; done
        return
    fi
    say "cgroups: v1"
    for top in /sys/fs/cgroup/*/; do
        top="${top%/}"
        # `cpu` may be a link to `cpu,cpuacct`. v2 beside v1 holds no controllers, but the kubelet puts pods there, too.
        [[ ! -L $top ]] || continue
        record_cgroup "$top/$CGROUP"
        mkdir -p "$top/$CGROUP"
        for host in "${HOSTS[@]}"; do
            mkdir -p "$top/$CGROUP/$host"
            # A cpuset without processors takes no process.
            if [[ -f $top/cpuset.cpus ]]; then
                cat "$top/cpuset.cpus" >"$top/$CGROUP/cpuset.cpus"; cat "$top/cpuset.mems" >"$top/$CGROUP/cpuset.mems"
                cat "$top/cpuset.cpus" >"$top/$CGROUP/$host/cpuset.cpus"; cat "$top/cpuset.mems" >"$top/$CGROUP/$host/cpuset.mems"
            fi
        done
    done
}
enable_controllers() {
    local controller controllers
    read -ra controllers <"$1/cgroup.controllers"
    for controller in "${controllers[@]}"; do
        echo "+$controller" >"$1/cgroup.subtree_control" 2>/dev/null || true
    done
}

# What containerd must be told where the right to lower the out-of-memory score is missing, as in many sandboxes.
may_lower_oom_score() { (echo $(($(cat /proc/self/oom_score_adj) - 1)) >/proc/self/oom_score_adj) 2>/dev/null; }
