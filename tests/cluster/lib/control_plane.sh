# shellcheck shell=bash
# etcd, the API server, the controllers, the scheduler, DNS and a service proxy for whoever runs a command in `control`.

kube() { inside control "$BIN/kubectl" --kubeconfig "$PKI/admin.kubeconfig" "$@"; }

start_api() {
    # Durability is not what the bed tests of etcd.
    recorded etcd >/dev/null || start control etcd "$BIN/etcd" --data-dir "$BED/etcd" --unsafe-no-fsync --log-level warn \
        --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
        --listen-peer-urls http://127.0.0.1:2380
    start control kube-apiserver "$BIN/kube-apiserver" --etcd-servers http://127.0.0.1:2379 \
        --advertise-address "$CONTROL_IP" --secure-port 6443 --service-cluster-ip-range "$SERVICE_CIDR" \
        --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
        --client-ca-file "$PKI/ca.crt" --tls-cert-file "$PKI/api.crt" --tls-private-key-file "$PKI/api.key" \
        --kubelet-certificate-authority "$PKI/ca.crt" --kubelet-preferred-address-types InternalIP \
        --kubelet-client-certificate "$PKI/api-to-kubelet.crt" --kubelet-client-key "$PKI/api-to-kubelet.key" \
        --service-account-issuer "https://kubernetes.default.svc.$CLUSTER_DOMAIN" \
        --service-account-key-file "$PKI/accounts.pub" --service-account-signing-key-file "$PKI/accounts.key" \
        --audit-policy-file "$BED_SOURCE/config/audit-policy.yaml" --audit-log-path "$LOGS/audit.log" \
        --audit-log-maxsize 200 --audit-log-maxbackup 1 --profiling=false
}

api_ready() { inside control curl -fsS --max-time 2 --cacert "$PKI/ca.crt" "https://$(at "$CONTROL_IP" 6443)/readyz"; }

# The controllers see a host as lost about 16 seconds after it fell silent; 50 is Kubernetes' own setting.
start_controllers() {
    start control kube-controller-manager "$BIN/kube-controller-manager" \
        --kubeconfig "$PKI/kube-controller-manager.kubeconfig" --leader-elect=false --use-service-account-credentials \
        --service-account-private-key-file "$PKI/accounts.key" --root-ca-file "$PKI/ca.crt" \
        --cluster-cidr "$POD_CIDR" --node-monitor-period 2s --node-monitor-grace-period 16s --profiling=false \
        --authentication-skip-lookup
    start control kube-scheduler "$BIN/kube-scheduler" --kubeconfig "$PKI/kube-scheduler.kubeconfig" \
        --leader-elect=false --profiling=false --authentication-skip-lookup
}

# As clusters usually have it: answers live 30 seconds, and those of the cluster's own names are not cached.
start_dns() {
    cat >"$BED/Corefile" <<END
$CLUSTER_DOMAIN in-addr.arpa ip6.arpa {
    bind $CONTROL_IP
    errors
    kubernetes $CLUSTER_DOMAIN in-addr.arpa ip6.arpa {
        kubeconfig $PKI/coredns.kubeconfig weir-bed
        pods insecure
        ttl 30
    }
}
END
    start control coredns "$BIN/coredns" -conf "$BED/Corefile"
}

# For kubectl and tests outside of the bed, which see its network only through this port on loopback.
start_door() {
    start control door-inside socat "UNIX-LISTEN:$BED/api.sock,fork,mode=600,unlink-early" "TCP:$(at "$CONTROL_IP" 6443)"
    wait_for 5 "the door's socket" test -S "$BED/api.sock" || fail "see $LOGS/door-inside.log"
    start door door socat "TCP-LISTEN:$API_PORT,bind=127.0.0.1,fork,reuseaddr" "UNIX-CONNECT:$BED/api.sock"
    wait_for 5 "port $API_PORT" curl -ksS --max-time 2 "https://127.0.0.1:$API_PORT/readyz" ||
        fail "port $API_PORT on loopback is not ours: set BED_API_PORT to a free one"
}

start_proxy() { # PLACE NODE ADDRESS
    inside "$1" sysctl -qw net.netfilter.nf_conntrack_tcp_be_liberal=1 2>/dev/null || true
    start "$1" "kube-proxy-$1" "$BIN/kube-proxy" --kubeconfig "$PKI/kube-proxy.kubeconfig" --hostname-override "$2" \
        --bind-address "$3" --proxy-mode iptables --cluster-cidr "$POD_CIDR" \
        --healthz-bind-address "$(at "$3" 10256)" --metrics-bind-address 127.0.0.1:10249 \
        --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0
}
