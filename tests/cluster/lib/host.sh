# shellcheck shell=bash
# What runs on a host: containerd, the kubelet, the service proxy; and its volumes. Paths are as the host sees them: its
# /var and /run are its own.

containerd_config() {
    cat <<END
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "$PAUSE_IMAGE"
restrict_oom_score_adj = $(may_lower_oom_score && echo false || echo true)
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "$REGISTRIES"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "$BED/$1/cni"
END
}

# A cable from each pod to its host and routes between hosts: with no bridge, whatever pods send passes the host's rules.
cni_config() {
    cat <<END
{"cniVersion": "0.4.0", "name": "weir-bed", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "/run/cni-addresses",
    "ranges": [[{"subnet": "$(host_pod_cidr "$1")"}]], "routes": [{"dst": "$EVERYWHERE"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
}

# Disks that are nearly full, as developers' are, must neither evict pods nor clear away images that cannot be pulled.
kubelet_config() {
    cat <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $(host_ip "$1")
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$PKI/ca.crt"}}
authorization: {mode: Webhook}
tlsCertFile: "$PKI/kubelet-$1.crt"
tlsPrivateKeyFile: "$PKI/kubelet-$1.key"
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP/$1
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
clusterDNS: ["$CONTROL_IP"]
clusterDomain: $CLUSTER_DOMAIN
maxPods: 100
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 8
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
imageGCHighThresholdPercent: 100
serializeImagePulls: false
syncFrequency: 10s
resolvConf: "$BED/resolv-of-hosts.conf"
shutdownGracePeriod: 0s
END
}

start_containerd() {
    mkdir -p "$BED/$1/cni"
    : >"$BED/resolv-of-hosts.conf"
    containerd_config "$1" >"$BED/$1/containerd.toml"
    cni_config "$1" >"$BED/$1/cni/10-weir-bed.conflist"
    start "$1" "containerd-$1" containerd --config "$BED/$1/containerd.toml" --log-level warn
    wait_for 60 "containerd on $1" inside "$1" ctr -a /run/containerd/containerd.sock version ||
        fail "see $LOGS/containerd-$1.log"
}

start_kubelet() {
    kubelet_config "$1" >"$BED/$1/kubelet.yaml"
    start "$1" "kubelet-$1" "$BIN/kubelet" --kubeconfig "$PKI/kubelet-$1.kubeconfig" --config "$BED/$1/kubelet.yaml" \
        --hostname-override "$1" --node-ip "$(host_ip "$1")" --root-dir /var/lib/kubelet \
        --node-labels "topology.kubernetes.io/zone=zone-${1##*-},topology.kubernetes.io/region=bed"
}

registered() { kube get node "$1"; }
ready() { [[ $(kube get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}') == True ]]; }

# A loss of power took all that ran, and what its pods' cgroups held.
start_host() {
    local host="$1" cgroup
    for cgroup in /sys/fs/cgroup/*/"$CGROUP/$host" "/sys/fs/cgroup/$CGROUP/$host"; do
        [[ ! -d $cgroup ]] || find "$cgroup" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null || true
    done
    start_host_namespace "$host"
    start_containerd "$host"
}

# Volumes of a host that no claim is bound to: those that never were made, and those whose claim is gone, wiped.
# `local` volumes have nobody who makes or empties them.
refill_volumes() {
    local host="$1" n name phase dir made
    declare -A phases=()
    while read -r name phase; do phases[$name]="$phase"; done < <(
        kube get pv -l "weir.dev/bed-host=$host" -o 'jsonpath={range .items[*]}{.metadata.name} {.status.phase}{"\n"}{end}')
    local released=()
    for n in $(seq "$VOLUMES_PER_HOST"); do
        name="$host-$n"
        [[ ${phases[$name]:-} != Released && ${phases[$name]:-} != Failed ]] || released+=("$name")
    done
    ((${#released[@]} == 0)) || kube delete pv "${released[@]}" >/dev/null
    made="$(for n in $(seq "$VOLUMES_PER_HOST"); do
        name="$host-$n"
        case ${phases[$name]:-} in '' | Released | Failed) ;; *) continue ;; esac
        dir="$BED/$host/var/lib/volumes/$n"
        rm -rf "$dir"
        mkdir -p "$dir"
        cat <<END
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: $name, labels: {weir.dev/bed-host: $host}}
spec:
  capacity: {storage: 20Gi}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: local
  local: {path: /var/lib/volumes/$n}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [$host]}]}]}}
END
    done)"
    [[ -z $made ]] || kube create -f - <<<"$made" >/dev/null
}
