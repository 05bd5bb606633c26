# shellcheck shell=bash
# Weir on a cluster of the user's, by CONTEXT and REGISTRY: what is checked before anything is built, images in the user's
# registry, and how it is removed again. None of it needs root or touches the bed.
#
# As `make` passes them on, or from the environment: BUILD_ARGS and PUSH_ARGS are more arguments of `docker build` and
# `docker push`, or buildah's; RUST_IMAGE and RUN_IMAGE other bases than the Dockerfile's; IMAGE_TOOL docker or buildah;
# PULL_CONFIG a file with credentials for the registry, such as ~/.docker/config.json, for the cluster to pull with.

# Whoever may pull with PULL_CONFIG has this Secret.
PULL_SECRET=weir-registry

# What is started here writes nothing into the bed's folder.
yours_begin() {
    LOGS="$(mktemp -d)"
    trap 'rm -rf "$LOGS"' EXIT
    BIN="$LOGS/bin"
    export PATH="$BIN:$PATH"
    need_clients
    check_context
}

# The user's own, or those that the bed has built.
need_clients() {
    command -v kubectl >/dev/null || [[ ! -d $(tool_dir kubernetes) ]] || need_tools kubernetes
    command -v kubectl >/dev/null || fail "kubectl is needed: https://kubernetes.io/docs/tasks/tools"
    command -v helm >/dev/null || [[ ! -d $(tool_dir helm) ]] || need_tools helm
    command -v helm >/dev/null || fail "helm is needed: https://helm.sh/docs/intro/install"
}

check_context() {
    local known said
    known="$(kubectl config get-contexts -o name 2>/dev/null | paste -sd ' ')"
    [[ -n ${CONTEXT:-} ]] ||
        fail "REGISTRY is for a cluster of yours: say which with CONTEXT=NAME; there are: ${known:-none}"
    [[ " $known " == *" $CONTEXT "* ]] ||
        fail "there is no context $CONTEXT in ${KUBECONFIG:-$HOME/.kube/config}; there are: ${known:-none}"
    # Not piped: what is asked for may be anything, what counts is whether somebody answers.
    said="$(ctl get --request-timeout 15s --raw /version 2>&1)" ||
        fail "the cluster of the context $CONTEXT does not answer: ${said##*$'\n'}"
}

# What would go wrong only after the images are built and pushed.
check_cluster() {
    local what missing=() classes there mine=amd64
    for what in namespaces customresourcedefinitions.apiextensions.k8s.io clusterroles.rbac.authorization.k8s.io; do
        ctl auth can-i create "$what" >/dev/null 2>&1 || missing+=("${what%%.*}")
    done
    ((${#missing[@]} == 0)) || fail "as you are in the context $CONTEXT you may not create ${missing[*]}, which the operator needs"
    # Whatever `make up` did not install may have other values, and is not its to remove.
    if helm_ -n "$OPERATOR_NAMESPACE" status weir-operator >/dev/null 2>&1 && [[ -z $(made_here) ]]; then
        fail "there is an operator already, Helm's release weir-operator in $OPERATOR_NAMESPACE, that 'make up' has not installed: \
'kubectl --context $CONTEXT apply -f deploy/quickstart.yaml' uses it, 'helm --kube-context $CONTEXT -n $OPERATOR_NAMESPACE \
uninstall weir-operator' makes room"
    fi
    classes="$(ctl get storageclasses -o 'jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations.storageclass\.kubernetes\.io/is-default-class}{"\n"}{end}' 2>/dev/null)" || classes="? true"
    grep -q ' true$' <<<"$classes" || fail "the cluster has no default storage class, so that volumes of the quickstart would never be made. \
There are: $(awk '{ print $1 }' <<<"${classes:-none}" | paste -sd ' '). One becomes the default with: kubectl --context $CONTEXT annotate \
storageclass NAME storageclass.kubernetes.io/is-default-class=true"
    [[ $(uname -m) != aarch64 ]] || mine=arm64
    there="$(ctl get nodes -o 'jsonpath={.items[*].status.nodeInfo.architecture}' 2>/dev/null | tr ' ' '\n' | sort -u | paste -sd ' ')" || there=""
    [[ -z $there || " $there " == *" $mine "* || ${BUILD_ARGS:-} == *--platform* ]] ||
        fail "images built on this machine are $mine and the cluster's nodes are $there: build on such a machine, or, if yours \
can emulate it, with BUILD_ARGS='--platform linux/${there%% *}'"
}

check_registry() {
    local part='[a-z0-9]+([._-]+[a-z0-9]+)*'
    [[ -n ${REGISTRY:-} ]] ||
        fail "CONTEXT needs REGISTRY=HOST[:PORT][/PATH] too, one that you may push to and the cluster pulls from"
    REGISTRY="${REGISTRY%/}"
    [[ $REGISTRY =~ ^[a-z0-9.-]+(:[0-9]+)?(/$part)*$ ]] ||
        fail "REGISTRY=$REGISTRY is no place for images: HOST[:PORT][/PATH] in small letters, without https:// and without a tag"
    [[ ${REGISTRY%%/*} == *[.:]* || ${REGISTRY%%/*} == localhost ]] ||
        fail "REGISTRY=$REGISTRY names no host; on Docker Hub it is REGISTRY=docker.io/$REGISTRY"
    [[ -z ${PULL_CONFIG:-} || -r $PULL_CONFIG ]] || fail "PULL_CONFIG=$PULL_CONFIG cannot be read"
}

# Sets IMAGE_TOOL. A docker that has no daemon is as good as none.
choose_image_tool() {
    local tool
    for tool in ${IMAGE_TOOL:-docker buildah}; do
        command -v "$tool" >/dev/null || continue
        [[ $tool != docker ]] || timeout 20 docker info >/dev/null 2>&1 || continue
        IMAGE_TOOL="$tool"
        return
    done
    [[ -z ${IMAGE_TOOL:-} ]] || fail "IMAGE_TOOL=$IMAGE_TOOL: it is docker, whose daemon must answer ('docker info'), or buildah"
    fail "images are built with docker, whose daemon must answer ('docker info'), or with buildah: neither is to be had. \
On Debian and Ubuntu: apt-get install buildah"
}

# Without TLS where docker would do so, too: on this machine.
push_args() {
    [[ $IMAGE_TOOL == docker || ! ${REGISTRY%%[:/]*} =~ ^(localhost|127\.[0-9.]+)$ ]] || printf '%s\n' --tls-verify=false
    # shellcheck disable=SC2086
    [[ -z ${PUSH_ARGS:-} ]] || printf '%s\n' $PUSH_ARGS
}

# A context for the build in which the binaries lie ready.
prebuilt_context() {
    local folder="$LOGS/context"
    mkdir -p "$folder/prebuilt"
    cp "$REPO/Dockerfile" "$REPO/.dockerignore" "$folder/"
    build_binaries
    for binary in "${BINARIES[@]}"; do strip -o "$folder/prebuilt/${binary##*/}" "$binary" || fail "strip is needed: Debian's binutils"; done
    CONTEXT_FOLDER="$folder"
}

# Builds both images and pushes them, each tagged by what is in it: what is unchanged restarts nothing, and what is changed
# is pulled. Sets NODE_TAG and OPERATOR_TAG.
push_weir() {
    local target image tag id args=() push=() CONTEXT_FOLDER="$REPO"
    # shellcheck disable=SC2206
    args=(${BUILD_ARGS:-})
    mapfile -t push < <(push_args)
    # Without it buildah builds all anew for the second image. Docker has no other way.
    [[ $IMAGE_TOOL != buildah ]] || args+=(--layers)
    [[ -z ${RUST_IMAGE:-} ]] || args+=(--build-arg "RUST_IMAGE=$RUST_IMAGE")
    [[ -z ${RUN_IMAGE:-} ]] || args+=(--build-arg "RUN_IMAGE=$RUN_IMAGE")
    [[ -z ${WEIR_FEATURES:-} ]] || args+=(--build-arg "FEATURES=$WEIR_FEATURES")
    if [[ -n ${WEIR_BINARIES:-} ]]; then
        prebuilt_context
        args+=(--build-arg PREBUILT=prebuilt)
    else
        say "building from source within an image: ten minutes or more the first time"
    fi
    for target in node operator; do
        image="$REGISTRY/weir"
        [[ $target == node ]] || image="$REGISTRY/weir-operator"
        say "building the image $image with $IMAGE_TOOL"
        "$IMAGE_TOOL" build --target "$target" --iidfile "$LOGS/id" "${args[@]}" "$CONTEXT_FOLDER" >&2 ||
            fail "$IMAGE_TOOL could not build it. Bases other than the Dockerfile's: RUST_IMAGE=… RUN_IMAGE=…; more arguments: BUILD_ARGS=…. $(without_tls BUILD_ARGS)"
        id="$(cat "$LOGS/id")"
        id="${id#sha256:}"
        tag="${id:0:16}"
        say "pushing $image:$tag"
        { "$IMAGE_TOOL" tag "$id" "$image:$tag" && "$IMAGE_TOOL" push "${push[@]}" "$image:$tag" >&2; } ||
            fail "$IMAGE_TOOL could not push $image:$tag. Credentials: $IMAGE_TOOL login ${REGISTRY%%/*}. $(without_tls PUSH_ARGS)"
        if [[ $target == node ]]; then NODE_TAG="$tag"; else OPERATOR_TAG="$tag"; fi
    done
}
without_tls() {
    if [[ $IMAGE_TOOL == buildah ]]; then
        echo "A registry without TLS: $1=--tls-verify=false"
    else
        echo "A registry without TLS: list it under insecure-registries in the daemon's /etc/docker/daemon.json"
    fi
}

# pull_secret NAMESPACE
pull_secret() {
    ctl -n "$1" create secret generic "$PULL_SECRET" --type kubernetes.io/dockerconfigjson \
        --from-file ".dockerconfigjson=$PULL_CONFIG" --dry-run=client -o yaml | ctl apply -f - >/dev/null ||
        fail "could not make the Secret $PULL_SECRET in $1 of $PULL_CONFIG"
}

yours_up() {
    local flags=()
    [[ -z ${CONTEXT:-} ]] || check_registry
    yours_begin
    check_cluster
    choose_image_tool
    push_weir
    if [[ -n ${PULL_CONFIG:-} ]]; then
        operator_namespace
        pull_secret "$OPERATOR_NAMESPACE"
        flags=(--set "imagePullSecrets={$PULL_SECRET}")
    fi
    install_operator "$REGISTRY" IfNotPresent "${flags[@]}"
    apply_quickstart "$REGISTRY"
    look_whether_it_works
    what_next
}

# Takes away what `yours_up` brought: not the CRD, with which every StreamCluster would go, and not the operator if it has
# more to look after.
yours_down() {
    local others made
    yours_begin
    say "removing the namespace $QUICKSTART_NAMESPACE: the cluster, its volumes and its bucket"
    # The nodes first: without the bucket they would be slow to stop.
    ctl -n "$QUICKSTART_NAMESPACE" delete streamcluster quickstart --ignore-not-found --cascade=foreground --timeout 2m >&2 2>"$LOGS/delete" ||
        grep -q "doesn't have a resource type" "$LOGS/delete" || say "  it does not go by itself: $(tail -1 "$LOGS/delete")"
    ctl delete namespace "$QUICKSTART_NAMESPACE" --ignore-not-found --timeout 3m >&2 ||
        fail "it does not go; this says why: kubectl --context $CONTEXT get namespace $QUICKSTART_NAMESPACE -o yaml"
    others="$(ctl get streamclusters.weir.dev -A --no-headers 2>/dev/null | awk '{ print $1 "/" $2 }' | paste -sd ' ')" || others=""
    made="$(made_here)"
    if ! helm_ -n "$OPERATOR_NAMESPACE" status weir-operator >/dev/null 2>&1; then
        say "there is no operator that Helm has installed in $OPERATOR_NAMESPACE"
    elif [[ -z $made ]]; then
        say "the operator stays: 'make up' has not installed it"
        return
    elif [[ -n $others ]]; then
        say "the operator stays, for it looks after other clusters: $others. To remove it all the same: \
helm --kube-context $CONTEXT -n $OPERATOR_NAMESPACE uninstall weir-operator"
        return
    else
        say "removing the operator"
        helm_ -n "$OPERATOR_NAMESPACE" uninstall weir-operator --wait --timeout 3m >"$LOGS/helm.log" 2>&1 ||
            { tail -5 "$LOGS/helm.log" >&2; fail "helm could not remove the operator"; }
    fi
    case $made in
        namespace) ctl delete namespace "$OPERATOR_NAMESPACE" --ignore-not-found --timeout 3m >&2 || fail "the namespace $OPERATOR_NAMESPACE does not go" ;;
        operator) ctl label namespace "$OPERATOR_NAMESPACE" "$MADE_LABEL-" >/dev/null ;;
    esac
    say "gone. What stays: images in the registry, and the CRD with any StreamCluster of yours. To remove it: \
kubectl --context $CONTEXT delete crd streamclusters.weir.dev"
}
