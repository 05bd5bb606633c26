# shellcheck shell=bash
# Weir on a cluster, the bed or one of the user's: binaries, images, the chart, the quickstart, and a look at whether it
# works.

OPERATOR_NAMESPACE=weir-system
QUICKSTART_NAMESPACE=weir-quickstart

# Within the bed's network, as in `bed run`, its API server is not behind the door.
if [[ -n ${WEIR_BED:-} ]]; then BED_KUBECONFIG="$PKI/admin.kubeconfig"; else BED_KUBECONFIG="$USER_KUBECONFIG"; fi

# kubectl and helm as the user would call them: at the bed, or at the context that was asked for.
ctl() {
    if [[ -n ${CONTEXT:-} ]]; then kubectl --context "$CONTEXT" "$@"; else kubectl --kubeconfig "$BED_KUBECONFIG" "$@"; fi
}
helm_() {
    if [[ -n ${CONTEXT:-} ]]; then helm --kube-context "$CONTEXT" "$@"; else helm --kubeconfig "$BED_KUBECONFIG" "$@"; fi
}

# Sets BINARIES; WEIR_BINARIES names a folder with binaries built before.
build_binaries() {
    local folder="${WEIR_BINARIES:-}"
    if [[ -z $folder ]]; then
        say "building weir and weir-operator (release)"
        local package
        # One after the other, as they are tested: built at once each would have what only the other wants of dependencies.
        for package in weir weir-operator; do
            (cd "$REPO" && cargo build --locked --release --quiet --package "$package" --bin "$package" \
                ${WEIR_FEATURES:+--features "$WEIR_FEATURES"}) || fail "cargo could not build $package"
        done
        folder="${CARGO_TARGET_DIR:-$REPO/target}/release"
    fi
    BINARIES=("$folder/weir" "$folder/weir-operator")
    local binary
    for binary in "${BINARIES[@]}"; do [[ -x $binary ]] || fail "there is no $binary"; done
}

# Into every host of the bed, unless it has it.
load_weir() {
    local host jobs=()
    for host in "${HOSTS[@]}"; do
        load_missing "$host" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || fail "could not load the images"; done
}
load_missing() {
    local host="$1" there file missing=() images=("$NODE_IMAGE:$NODE_TAG" "$OPERATOR_IMAGE:$OPERATOR_TAG")
    there="$(inside "$host" ctr -a /run/containerd/containerd.sock -n k8s.io images ls -q)"
    for n in "${!WEIR_ARCHIVES[@]}"; do
        grep -qxF "${images[n]}" <<<"$there" || missing+=("${WEIR_ARCHIVES[n]}")
    done
    ((${#missing[@]} == 0)) || load "$host" "${missing[@]}"
}

# What `made_here` finds: whether the namespace, too, is of ours.
MADE_LABEL=weir.dev/make-up
operator_namespace() {
    local made=operator there
    there="$(ctl get namespace "$OPERATOR_NAMESPACE" --ignore-not-found -o name)" || fail "the cluster does not answer"
    if [[ -z $there ]]; then
        made=namespace
        ctl create namespace "$OPERATOR_NAMESPACE" >/dev/null || fail "could not make the namespace $OPERATOR_NAMESPACE"
        ctl label namespace "$OPERATOR_NAMESPACE" pod-security.kubernetes.io/enforce=restricted >/dev/null
    fi
    [[ -n $(made_here) ]] || ctl label namespace "$OPERATOR_NAMESPACE" "$MADE_LABEL=$made" >/dev/null
}
made_here() {
    ctl get namespace "$OPERATOR_NAMESPACE" --ignore-not-found -o 'jsonpath={.metadata.labels.weir\.dev/make-up}' 2>/dev/null || true
}

install_operator() { # PREFIX POLICY [HELM FLAG…]
    local prefix="$1" policy="$2"
    shift 2
    say "installing the operator with helm"
    operator_namespace
    # Not --wait, which would say nothing of what it waits for.
    helm_ upgrade --install weir-operator "$REPO/charts/weir-operator" --namespace "$OPERATOR_NAMESPACE" \
        --set "image.repository=$prefix/weir-operator,image.tag=$OPERATOR_TAG,image.pullPolicy=$policy" \
        --set "nodeImage.repository=$prefix/weir,nodeImage.tag=$NODE_TAG" "$@" --timeout 3m >"$LOGS/helm.log" 2>&1 ||
        { tail -5 "$LOGS/helm.log" >&2; fail "helm could not install the operator"; }
    watch_until 180 "$OPERATOR_NAMESPACE" "the operator" operator_runs ||
        fail "the operator does not become ready: $(hint "-n $OPERATOR_NAMESPACE describe pods")"
}
operator_runs() {
    [[ $(ctl -n "$OPERATOR_NAMESPACE" rollout status deployment/weir-operator --watch=false 2>/dev/null) == *"successfully rolled out"* ]]
}

apply_quickstart() {
    local spec="\"image\": \"$1/weir:$NODE_TAG\""
    say "applying deploy/quickstart.yaml: a cluster of three nodes and a bucket"
    ctl apply -f "$REPO/deploy/quickstart.yaml" >/dev/null || fail "the API server does not take it"
    if [[ -n ${PULL_CONFIG:-} ]]; then
        pull_secret "$QUICKSTART_NAMESPACE"
        spec+=", \"imagePullSecrets\": [{\"name\": \"$PULL_SECRET\"}]"
    fi
    # A cluster keeps the image that it was made with. One that was there before is rolled to what was built now.
    ctl -n "$QUICKSTART_NAMESPACE" patch streamcluster quickstart --type merge -p "{\"spec\": {$spec}}" >/dev/null || fail "could not set the image"
    watch_until 300 "$QUICKSTART_NAMESPACE" "the cluster" quickstart_ready ||
        fail "the cluster does not become ready: $(hint "-n $QUICKSTART_NAMESPACE describe strc,pods")"
    say "the cluster is ready: $(quickstart '{.status.ready} nodes')"
}
# Says what is waited for, as anybody sees it.
QUICKSTART_SAID=""
quickstart_ready() {
    local now
    now="$(quickstart '{.status.ready}  {.status.state}  {.status.message}')"
    [[ $now =~ ^' '*$ || $now == "$QUICKSTART_SAID" ]] || { QUICKSTART_SAID="$now"; say "  $now"; }
    [[ $(quickstart '{.status.conditions[?(@.type=="StorageReady")].reason}') != OtherCluster ]] ||
        fail "the bucket in $QUICKSTART_NAMESPACE still has the records of a StreamCluster that was deleted. To remove them: \
$(hint "delete namespace $QUICKSTART_NAMESPACE"). To take them over: spec.objectStore.adoptClusterUid, docs/operator.md"
    # Of the spec as it is now, and with nothing under way.
    now="$(quickstart '{.metadata.generation} {.status.observedGeneration} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Progressing")].status}')"
    [[ $now =~ ^([0-9]+)\ ([0-9]+)\ True\ False$ && ${BASH_REMATCH[1]} == "${BASH_REMATCH[2]}" ]]
}
hint() {
    if [[ -n ${CONTEXT:-} ]]; then echo "kubectl --context $CONTEXT $1"; else echo "kubectl --kubeconfig $USER_KUBECONFIG $1"; fi
}

# watch_until SECONDS NAMESPACE WHAT COMMAND…: until the command succeeds. Says what keeps pods of the namespace from
# starting, once each, and does not wait for images that cannot be pulled.
watch_until() {
    local deadline=$((SECONDS + $1)) namespace="$2" what="$3" unpullable="" trouble line
    shift 3
    declare -A said=()
    until "$@"; do
        trouble="$(pod_trouble "$namespace")"
        while read -r line; do
            [[ -z $line || -n ${said[$line]:-} ]] || { said[$line]=1; say "  $line"; }
        done <<<"$trouble"
        if grep -qE "$UNPULLABLE" <<<"$trouble"; then
            # A registry may falter for a moment.
            : "${unpullable:=$SECONDS}"
            ((SECONDS - unpullable < 20)) || fail "$what cannot start: an image cannot be pulled. \
The hosts of the cluster must reach its registry, trust its certificate (or be told that it has none), and may need \
credentials: PULL_CONFIG=~/.docker/config.json"
        else
            unpullable=""
        fi
        ((SECONDS < deadline)) || return 1
        sleep 0.5
    done
}
UNPULLABLE=': (ErrImagePull|ImagePullBackOff|InvalidImageName|ErrImageNeverPull|RegistryUnavailable): '
# A line per pod and reason, as `POD: REASON: MESSAGE`; what is on its way as usual is no trouble.
# shellcheck disable=SC2016
pod_trouble() {
    ctl -n "$1" get pods -o 'go-template={{range .items}}{{$pod := .metadata.name}}{{range .status.conditions}}{{if and (eq .type "PodScheduled") (eq .status "False")}}{{$pod}}: {{.reason}}: {{.message}}{{"\n"}}{{end}}{{end}}{{range .status.containerStatuses}}{{with .state.waiting}}{{$pod}}: {{.reason}}: {{.message}}{{"\n"}}{{end}}{{end}}{{end}}' 2>/dev/null |
        grep -vE ': (ContainerCreating|PodInitializing): ' || true
}

quickstart() { ctl -n "$QUICKSTART_NAMESPACE" get streamcluster quickstart -o "jsonpath=$1" 2>/dev/null; }

# Through the Service and whatever redirects follow, from inside a node's pod: nothing else has to be there.
weir_in_pod() {
    local command="$1"
    shift
    ctl -n "$QUICKSTART_NAMESPACE" exec quickstart-0 -- \
        weir "$command" --server "http://quickstart.$QUICKSTART_NAMESPACE.svc:4437" "$@"
}
look_whether_it_works() {
    local stream="hello-$RANDOM$RANDOM" text
    HELLO="$stream"
    text="appended at $(date -u +%FT%TZ) "
    weir_in_pod create "$stream" --content-type text/plain >/dev/null || fail "could not create a stream"
    weir_in_pod append "$stream" "$text" >/dev/null || fail "could not append"
    [[ $(weir_in_pod read "$stream") == "$text"* ]] || fail "what was appended to $stream cannot be read"
    say "appended to the stream $stream and read it back"
}

what_next() {
    local set_up
    if [[ -n ${CONTEXT:-} ]]; then set_up="kubectl config use-context $CONTEXT"; else set_up="eval \"\$($BED_SOURCE/bed env)\""; fi
    cat <<END

Weir runs on Kubernetes. Try:

  $set_up
  kubectl -n $QUICKSTART_NAMESPACE get strc,pods
  kubectl -n $QUICKSTART_NAMESPACE describe strc quickstart

  # another weight for a node: applied in about a second, no pod restarts
  kubectl -n $QUICKSTART_NAMESPACE patch strc quickstart --type merge -p '{"spec": {"nodes": [{"ordinal": 0, "slots": 4}]}}'
  kubectl -n $QUICKSTART_NAMESPACE get strc quickstart -o jsonpath='{.status.nodes[*].slots}{"\n"}'

  # a node more, and a node lost
  kubectl -n $QUICKSTART_NAMESPACE scale strc quickstart --replicas 4
  kubectl -n $QUICKSTART_NAMESPACE delete pod quickstart-1 --grace-period 0 --force

  # streams, from within the cluster
  kubectl -n $QUICKSTART_NAMESPACE exec -it quickstart-0 -- weir tail --server http://quickstart.$QUICKSTART_NAMESPACE.svc:4437 -n 10 $HELLO

END
    if [[ -n ${CONTEXT:-} ]]; then
        echo "  make down CONTEXT=$CONTEXT    removes the quickstart, with its records, and the operator"
    else
        echo "  make down    removes every trace of it"
    fi
}

# `bed operator`: on the bed.
# shellcheck disable=SC2120
operator_up() {
    bed_is_up || fail "there is no bed: $BED_SOURCE/bed up"
    build_binaries
    build_weir "${BINARIES[@]}"
    load_weir
    install_operator "${NODE_IMAGE%/*}" Never "$@"
}

# `bed weir`: all of the above, on what runs.
weir_up() {
    # shellcheck disable=SC2119
    operator_up
    apply_quickstart "${NODE_IMAGE%/*}"
    look_whether_it_works
    what_next
}
