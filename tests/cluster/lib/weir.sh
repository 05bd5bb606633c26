# shellcheck shell=bash
# Weir on a cluster, the bed or one of the user's: binaries, images, the chart, the quickstart, and a look at whether it
# works.

OPERATOR_NAMESPACE=weir-system
QUICKSTART_NAMESPACE=weir-quickstart

# kubectl and helm as the user would call them: at the bed, or at the context that was asked for.
ctl() {
    if [[ -n ${CONTEXT:-} ]]; then kubectl --context "$CONTEXT" "$@"; else kubectl --kubeconfig "$USER_KUBECONFIG" "$@"; fi
}
helm_() {
    if [[ -n ${CONTEXT:-} ]]; then helm --kube-context "$CONTEXT" "$@"; else helm --kubeconfig "$USER_KUBECONFIG" "$@"; fi
}

# Sets BINARIES; WEIR_BINARIES names a folder with binaries built before.
build_binaries() {
    local folder="${WEIR_BINARIES:-}"
    if [[ -z $folder ]]; then
        say "building weir and weir-operator (release)"
        (cd "$REPO" && cargo build --locked --release --quiet --package weir --package weir-operator \
            --bin weir --bin weir-operator ${WEIR_FEATURES:+--features "$WEIR_FEATURES"}) || fail "cargo could not build them"
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

# To the registry of the user's cluster. Sets IMAGE_PREFIX.
push_weir() {
    local target tool=docker
    command -v docker >/dev/null && docker info >/dev/null 2>&1 || tool=buildah
    command -v "$tool" >/dev/null || fail "docker or buildah is needed to build images for a cluster of yours"
    [[ -n ${REGISTRY:-} ]] || fail "CONTEXT needs REGISTRY, one that you may push to and the cluster pulls from"
    NODE_TAG="$(git -C "$REPO" describe --always --dirty)"
    OPERATOR_TAG="$NODE_TAG"
    for target in node operator; do
        local image="$REGISTRY/weir"
        [[ $target == node ]] || image="$REGISTRY/weir-operator"
        say "building and pushing $image:$NODE_TAG with $tool"
        "$tool" build --target "$target" --tag "$image:$NODE_TAG" "$REPO" && "$tool" push "$image:$NODE_TAG" ||
            fail "could not build or push $image"
    done
}

install_operator() { # PREFIX POLICY [HELM FLAG…]
    local prefix="$1" policy="$2"
    shift 2
    say "installing the operator with helm"
    ctl create namespace "$OPERATOR_NAMESPACE" --dry-run=client -o json |
        jq '.metadata.labels = {"pod-security.kubernetes.io/enforce": "restricted"}' | ctl apply -f - >/dev/null
    helm_ upgrade --install weir-operator "$REPO/charts/weir-operator" --namespace "$OPERATOR_NAMESPACE" \
        --set "image.repository=$prefix/weir-operator,image.tag=$OPERATOR_TAG,image.pullPolicy=$policy" \
        --set "nodeImage.repository=$prefix/weir,nodeImage.tag=$NODE_TAG" "$@" --wait --timeout 3m >"$LOGS/helm.log" 2>&1 ||
        { tail -5 "$LOGS/helm.log" >&2; ctl -n "$OPERATOR_NAMESPACE" get pods >&2; fail "helm could not install the operator"; }
}

apply_quickstart() {
    local image="$1/weir:$NODE_TAG"
    local deadline=$((SECONDS + 300)) last="" now
    say "applying deploy/quickstart.yaml: a cluster of three nodes and a bucket"
    ctl apply -f "$REPO/deploy/quickstart.yaml" >/dev/null || fail "the API server does not take it"
    # A cluster keeps the image that it was made with. One that was there before is rolled to what was built now.
    ctl -n "$QUICKSTART_NAMESPACE" patch streamcluster quickstart --type merge \
        -p "{\"spec\": {\"image\": \"$image\"}}" >/dev/null || fail "could not set the image"
    # What is waited for, as anybody sees it.
    until [[ $(quickstart '{.status.conditions[?(@.type=="Ready")].status}') == True ]]; do
        ((SECONDS < deadline)) || { ctl -n "$QUICKSTART_NAMESPACE" get strc,pods -o wide >&2; fail "the cluster does not become ready"; }
        now="$(quickstart '{.status.ready}  {.status.state}  {.status.message}')"
        [[ $now == "$last" ]] || { last="$now"; say "  $now"; }
        sleep 0.5
    done
    say "the cluster is ready: $(quickstart '{.status.ready} nodes')"
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

  # streams: from a pod, or from here through a tunnel
  kubectl -n $QUICKSTART_NAMESPACE exec -it quickstart-0 -- weir tail --server http://quickstart.$QUICKSTART_NAMESPACE.svc:4437 STREAM

END
    [[ -n ${CONTEXT:-} ]] || echo "  make down    removes every trace of it"
}

# `bed operator`: on the bed.
operator_up() {
    bed_is_up || fail "there is no bed: $BED_SOURCE/bed up"
    build_binaries
    build_weir "${BINARIES[@]}"
    load_weir
    install_operator "${NODE_IMAGE%/*}" Never "$@"
}

# `bed weir`: all of the above, on what runs.
weir_up() {
    local prefix
    if [[ -n ${CONTEXT:-} ]]; then
        LOGS="$(mktemp -d)"
        need_tools helm kubernetes
        push_weir
        prefix="$REGISTRY"
        install_operator "$prefix" IfNotPresent
    else
        operator_up
        prefix="${NODE_IMAGE%/*}"
    fi
    apply_quickstart "$prefix"
    look_whether_it_works
    what_next
}
