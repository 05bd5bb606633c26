# shellcheck shell=bash
# Versions, folders and addresses of the test bed: the only place that names them. Sourced by every command.

# What is built, and with what. A change of a version or of a go.mod below tools/ builds that tool anew.
GO_VERSION=1.27.3
KUBERNETES_VERSION=1.34.4
ETCD_VERSION=3.6.7
HELM_VERSION=3.22.0
COREDNS_VERSION=1.14.7
VERSITYGW_VERSION=1.8.0
REGISTRY_VERSION=0.22.1

BED_SOURCE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
REPO="$(cd "$BED_SOURCE/../.." && pwd)"
CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/weir"
TOOLS="$CACHE/tools"
# Everything that a running bed writes is below this folder, so that removing it leaves nothing.
BED="$CACHE/bed"
BIN="$BED/bin" # links to the tools of the versions above
RECORD="$BED/record"
LOGS="$BED/logs"
PKI="$BED/pki"
export PATH="$BIN:$PATH:/usr/sbin:/sbin"

# The hosts; each is a network, process and mount namespace of its own with a containerd and a kubelet. Three, so that one
# can be lost that has neither the bucket nor the operator, and the quorum holds.
read -ra HOSTS <<<"${BED_HOSTS:-node-a node-b node-c}"
[[ ! -f $BED/hosts ]] || read -ra HOSTS <"$BED/hosts" # a bed that is there keeps its own
VOLUMES_PER_HOST=24

# The bed's own network, unseen from outside its namespace. `control` has the API server, DNS and whoever runs a test.
UPLINK_NET=10.87.0
CONTROL_IP=$UPLINK_NET.1
POD_NET=10.88
POD_CIDR=$POD_NET.0.0/16
SERVICE_CIDR=10.96.0.0/16
CLUSTER_DOMAIN=cluster.local
# The API server's port on loopback, outside of the bed, for kubectl and tests.
API_PORT="${BED_API_PORT:-16443}"
# The same for the registry, where one is started.
REGISTRY_PORT="${BED_REGISTRY_PORT:-15000}"
# Where containerd looks up how to reach a registry.
REGISTRIES="$BED/registries"
# For the use of whoever runs the bed; what the bed itself uses is $PKI/admin.kubeconfig.
USER_KUBECONFIG="$BED/kubeconfig"

# Pods are put below this cgroup, the only trace of the bed outside its namespaces and its folder.
CGROUP="${BED_CGROUP:-weir-bed}"

# The n-th host's address, and the addresses of its pods.
host_number() {
    local i
    for i in "${!HOSTS[@]}"; do
        [[ ${HOSTS[i]} == "$1" ]] && { echo $((i + 1)); return; }
    done
    fail "there is no host $1; there are ${HOSTS[*]}"
}
host_ip() { local n; n="$(host_number "$1")" || return; echo "$UPLINK_NET.$((10 + n))"; }
host_pod_cidr() { local n; n="$(host_number "$1")" || return; echo "$POD_NET.$n.0/24"; }
