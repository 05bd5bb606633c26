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
# Everything that a running bed writes is below this folder, so that removing it leaves nothing. One with a name is another
# bed, beside the nameless one.
[[ ${BED_NAME:-} =~ ^[a-z0-9-]*$ ]] || fail "BED_NAME is of a-z, 0-9 and -, not $BED_NAME"
BED="$CACHE/bed${BED_NAME:+-$BED_NAME}"
BIN="$BED/bin" # links to the tools of the versions above
RECORD="$BED/record"
LOGS="$BED/logs"
PKI="$BED/pki"
export PATH="$BIN:$PATH:/usr/sbin:/sbin"

# The hosts; each is a network, process and mount namespace of its own with a containerd and a kubelet. Three, so that one
# can be lost that has neither the bucket nor the operator, and the quorum holds.
read -ra HOSTS <<<"${BED_HOSTS:-node-a node-b node-c}"
VOLUMES_PER_HOST=24
# ipv4 or ipv6: the one family of addresses that hosts, pods and Services have.
IP_FAMILY="${BED_IP_FAMILY:-ipv4}"
# The domain of the cluster's names.
CLUSTER_DOMAIN="${BED_CLUSTER_DOMAIN:-cluster.local}"
# A bed that runs keeps its own.
keep_settings() { declare -p HOSTS IP_FAMILY CLUSTER_DOMAIN >"$BED/settings"; }
# shellcheck source=/dev/null
if [[ -f $BED/settings ]] && recorded control >/dev/null; then . "$BED/settings"; fi

# The bed's own network, unseen from outside its namespace. `control` has the API server, DNS and whoever runs a test.
case $IP_FAMILY in
    ipv4)
        UPLINK_NET=10.87.0. UPLINK_BITS=24
        POD_CIDR=10.88.0.0/16 HOST_POD_CIDR=10.88.%d.0/24
        SERVICE_CIDR=10.96.0.0/16 API_SERVICE_IP=10.96.0.1
        EVERYWHERE=0.0.0.0/0
        IPTABLES=iptables FORWARDING=net.ipv4.ip_forward
        ADDRESS_FLAGS=() NEIGHBOURS=()
        ;;
    ipv6)
        UPLINK_NET=fd00:87:: UPLINK_BITS=64
        POD_CIDR=fd00:88::/48 HOST_POD_CIDR=fd00:88:0:%d::/64
        SERVICE_CIDR=fd00:96::/112 API_SERVICE_IP=fd00:96::1
        EVERYWHERE=::/0
        IPTABLES=ip6tables FORWARDING=net.ipv6.conf.all.forwarding
        # Addresses hold at once: there is no other machine to have the same. And what ARP is to IPv4 passes the packet
        # filter here.
        ADDRESS_FLAGS=(nodad) NEIGHBOURS=(neighbour-solicitation neighbour-advertisement)
        ;;
    *) fail "BED_IP_FAMILY is ipv4 or ipv6, not $IP_FAMILY" ;;
esac
CONTROL_IP=${UPLINK_NET}1
# The API server's port on loopback, outside of the bed, for kubectl and tests.
API_PORT="${BED_API_PORT:-16443}"
# The same for the registry, where one is started.
REGISTRY_PORT="${BED_REGISTRY_PORT:-15000}"
# Where containerd looks up how to reach a registry.
REGISTRIES="$BED/registries"
# For the use of whoever runs the bed; what the bed itself uses is $PKI/admin.kubeconfig.
USER_KUBECONFIG="$BED/kubeconfig"

# Pods are put below this cgroup, the only trace of the bed outside its namespaces and its folder.
CGROUP="${BED_CGROUP:-weir-bed${BED_NAME:+-$BED_NAME}}"

# The n-th host's address, and the addresses of its pods.
host_number() {
    local i
    for i in "${!HOSTS[@]}"; do
        [[ ${HOSTS[i]} == "$1" ]] && { echo $((i + 1)); return; }
    done
    fail "there is no host $1; there are ${HOSTS[*]}"
}
host_ip() { local n; n="$(host_number "$1")" || return; echo "$UPLINK_NET$((10 + n))"; }
# shellcheck disable=SC2059
host_pod_cidr() { local n; n="$(host_number "$1")" || return; printf "$HOST_POD_CIDR\n" "$n"; }
# at ADDRESS PORT, as URLs have it.
at() { if [[ $1 == *:* ]]; then echo "[$1]:$2"; else echo "$1:$2"; fi; }
