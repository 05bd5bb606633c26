# shellcheck shell=bash
# Builds the programs of Kubernetes and its surroundings from Go modules, once per version, into $TOOLS. No registry of
# images and no prebuilt binary is needed, only the Go module proxy.

# Each tool: its folder below tools/, its version, its binaries. Versions must agree with the go.mod there: `check_versions`.
tool_version() {
    case $1 in
        kubernetes) echo "$KUBERNETES_VERSION" ;;
        etcd) echo "$ETCD_VERSION" ;;
        helm) echo "$HELM_VERSION" ;;
        coredns) echo "$COREDNS_VERSION" ;;
        registry) echo "$REGISTRY_VERSION" ;;
    esac
}
tool_binaries() {
    case $1 in
        kubernetes) echo kubelet kubectl kube-apiserver kube-controller-manager kube-scheduler kube-proxy ;;
        *) echo "$1" ;;
    esac
}
tool_package() {
    case $1 in
        kubelet | kubectl | kube-*) echo "k8s.io/kubernetes/cmd/$1" ;;
        etcd) echo go.etcd.io/etcd/server/v3 ;;
        helm) echo helm.sh/helm/v3/cmd/helm ;;
        coredns | registry) echo . ;;
    esac
}

# A folder per tool, version and what it is built from, so that a half-built or an old one is never taken.
tool_dir() {
    local sum
    sum="$({ cat "$BED_SOURCE/tools/$1"/go.{mod,sum} && tool_ldflags "$1"; } | sha256sum | cut -c1-8)"
    echo "$TOOLS/$1-$(tool_version "$1")-$sum"
}

# What the programs say of themselves: a server that says v0.0.0 is refused by clients, and a helm that thinks of
# Kubernetes 1.20 refuses charts.
tool_ldflags() {
    local minor
    minor="$(cut -d. -f2 <<<"$KUBERNETES_VERSION")"
    echo -n "-s -w"
    case $1 in
        kubernetes)
            local key=k8s.io/component-base/version
            echo -n " -X $key.gitVersion=v$KUBERNETES_VERSION -X $key.gitMajor=1 -X $key.gitMinor=$minor -X $key.gitTreeState=clean"
            ;;
        helm)
            local key
            for key in helm.sh/helm/v3/pkg/lint/rules helm.sh/helm/v3/pkg/chartutil; do
                echo -n " -X $key.k8sVersionMajor=1 -X $key.k8sVersionMinor=$minor"
            done
            echo -n " -X helm.sh/helm/v3/internal/version.version=v$HELM_VERSION"
            ;;
    esac
}

build_tool() {
    local tool="$1" dir new binary
    dir="$(tool_dir "$tool")"
    mkdir -p "$TOOLS/go-build"
    new="$(mktemp -d "$TOOLS/new.XXXXXX")"
    for binary in $(tool_binaries "$tool"); do
        say "building $binary $(tool_version "$tool") (once; all of the bed's take about 10 minutes on two idle cores)"
        (
            cd "$BED_SOURCE/tools/$tool"
            # Modules and objects are shared by the tools and are of no further use once all are built.
            export GOPATH="$TOOLS/go-build/path" GOCACHE="$TOOLS/go-build/cache" GOFLAGS="-modcacherw -buildvcs=false"
            export CGO_ENABLED=0 GO_VERSION
            # Whoever works at the machine comes first.
            nice -n 10 "$REPO/.ci/go" build -mod=readonly -trimpath -ldflags "$(tool_ldflags "$tool")" \
                -o "$new/$binary" "$(tool_package "$binary")"
        ) || { rm -rf "$new"; fail "could not build $binary"; }
    done
    # Another set-up at the same time may have been first.
    mv -T "$new" "$dir" 2>/dev/null || { rm -rf "$new"; [[ -d $dir ]]; }
}

# need_tools TOOL…: builds what is missing and links all of it into $BIN.
need_tools() {
    local tool binary built=0
    mkdir -p "$BIN"
    for tool in "$@"; do
        [[ -d $(tool_dir "$tool") ]] || { build_tool "$tool"; built=1; }
        for binary in $(tool_binaries "$tool"); do ln -sf "$(tool_dir "$tool")/$binary" "$BIN/$binary"; done
    done
    ((built == 0)) || rm -rf "$TOOLS/go-build"
}
