# shellcheck shell=bash
# A small certificate authority for the bed, and a client configuration for each of its parts.

make_ca() {
    mkdir -p "$PKI"
    chmod 700 "$PKI"
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=weir-bed \
        -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature \
        -keyout "$PKI/ca.key" -out "$PKI/ca.crt" 2>>"$LOGS/pki.log"
    openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/accounts.key"
    openssl ec -in "$PKI/accounts.key" -pubout -out "$PKI/accounts.pub" 2>>"$LOGS/pki.log"
}

# issue NAME SUBJECT [ALT_NAMES]: with alternative names it may serve, too.
issue() {
    local name="$1" subject="$2" names="${3:-}"
    {
        echo "basicConstraints=CA:FALSE"
        echo "extendedKeyUsage=clientAuth${names:+,serverAuth}"
        [[ -z $names ]] || echo "subjectAltName=$names"
    } >"$PKI/$name.ext"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$subject" -keyout "$PKI/$name.key" 2>>"$LOGS/pki.log" |
        openssl x509 -req -days 365 -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -extfile "$PKI/$name.ext" \
            -out "$PKI/$name.crt" 2>>"$LOGS/pki.log" || fail "no certificate for $name; see $LOGS/pki.log"
}

# kubeconfig NAME SERVER FILE: of what was issued for NAME.
kubeconfig() {
    local name="$1" server="$2" file="$3"
    (umask 077 && cat >"$file") <<END
apiVersion: v1
kind: Config
current-context: weir-bed
contexts: [{name: weir-bed, context: {cluster: weir-bed, user: "$name"}}]
clusters:
  - name: weir-bed
    cluster: {server: "$server", certificate-authority-data: $(base64 -w0 "$PKI/ca.crt")}
users:
  - name: "$name"
    user: {client-certificate-data: $(base64 -w0 "$PKI/$name.crt"), client-key-data: $(base64 -w0 "$PKI/$name.key")}
END
}

make_pki() {
    local host api domain="$CLUSTER_DOMAIN"
    api="https://$(at "$CONTROL_IP" 6443)"
    make_ca
    issue api /CN=kube-apiserver "IP:$CONTROL_IP,IP:127.0.0.1,IP:$API_SERVICE_IP,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.$domain"
    issue api-to-kubelet /CN=kube-apiserver-kubelet-client
    issue admin /O=system:masters/CN=admin
    kubeconfig admin "$api" "$PKI/admin.kubeconfig"
    kubeconfig admin "https://127.0.0.1:$API_PORT" "$USER_KUBECONFIG"
    for part in kube-controller-manager kube-scheduler kube-proxy coredns; do
        issue "$part" "/CN=system:$part"
        kubeconfig "$part" "$api" "$PKI/$part.kubeconfig"
    done
    for host in "${HOSTS[@]}"; do
        issue "kubelet-$host" "/O=system:nodes/CN=system:node:$host" "DNS:$host,IP:$(host_ip "$host")"
        kubeconfig "kubelet-$host" "$api" "$PKI/kubelet-$host.kubeconfig"
    done
}
