# shellcheck shell=bash
# The images of the bed, with no registry: base images from this machine's own libraries, Weir's from the Dockerfile with
# binaries of cargo's release build, all loaded into each host's containerd.

# Kept by the content they are made from.
IMAGES="$TOOLS/images"
PAUSE_IMAGE=localhost/weir-bed/pause:1
BASE_RUN=localhost/weir-bed/run:1
BASE_SHELL=localhost/weir-bed/shell:1
# Those that elsewhere are pulled: as the chart's test names it, which is the sandbox's image here, and the quickstart.
TEST_IMAGE=docker.io/library/busybox:stable
S3_IMAGE="docker.io/versity/versitygw:v$VERSITYGW_VERSION"
NODE_IMAGE=localhost/weir/weir
OPERATOR_IMAGE=localhost/weir/weir-operator

# Mounts of buildah's own end with it.
buildah_() {
    unshare --mount --propagation private buildah --root "$BED/buildah" --runroot "$BED/buildah-run" \
        --storage-driver vfs "$@"
}

content_key() { cat "$@" | sha256sum | cut -c1-16; }

# archive IMAGE KEY: where its archive is; uncompressed, for nothing travels.
archive() { echo "$IMAGES/$(tr '/:' '__' <<<"$1")-$2.tar"; }

# save IMAGE FILE [NAME]: whatever breaks off half-way leaves no file under the final name; older ones of the name go.
save() {
    local image="$1" file="$2" name
    name="$(tr '/:' '__' <<<"${3:-$1}")"
    mkdir -p "$IMAGES"
    rm -f "$file.new"
    buildah_ push --quiet "$image" "docker-archive:$file.new:$image" >>"$LOGS/images.log" 2>&1
    find "$IMAGES" -name "$name-????????????????.tar" -delete
    mv "$file.new" "$file"
}

# from_folder IMAGE FOLDER [CONFIG…]: an image with the folder as its root.
from_folder() {
    local image="$1" folder="$2" work
    shift 2
    work="$(buildah_ from scratch)"
    buildah_ copy --quiet "$work" "$folder" / >/dev/null
    (($# == 0)) || buildah_ config "$@" "$work"
    buildah_ commit --quiet --rm "$work" "$image" >>"$LOGS/images.log" 2>&1
}

# A program's libraries, as the loader finds them, below a folder.
copy_libraries() {
    local folder="$1" program="$2" library
    ldd "$program" | grep -o '/[^ ]*' | sort -u | while read -r library; do
        mkdir -p "$folder$(dirname "$library")"
        cp -L "$library" "$folder$library"
    done
}

base_folder() {
    local folder="$1"
    mkdir -p "$folder"/{etc/ssl/certs,tmp}
    chmod 1777 "$folder/tmp"
    cp -L /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/"
    printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' >"$folder/etc/passwd"
    printf 'root:x:0:\nnonroot:x:65532:\n' >"$folder/etc/group"
    printf 'hosts: files dns\n' >"$folder/etc/nsswitch.conf"
}

busybox_folder() {
    local folder="$1" name
    base_folder "$folder"
    mkdir -p "$folder/bin"
    cp /bin/busybox "$folder/bin/"
    for name in sh mkdir cp; do ln -s busybox "$folder/bin/$name"; done
    copy_libraries "$folder" /bin/busybox
}

# Once per version: the sandbox's image, what Weir's are based on, and the S3 server.
need_base_images() {
    local key file folder s3
    s3="$(VERSITYGW_VERSION="$VERSITYGW_VERSION" "$REPO/.ci/versitygw")" || fail "could not build versitygw"
    key="$(content_key /bin/busybox "${BASH_SOURCE[0]}")"
    file="$(archive "$PAUSE_IMAGE" "$key")"
    if [[ ! -f $file ]]; then
        say "building the sandbox's image"
        folder="$(mktemp -d "$BED/image.XXXXXX")"
        busybox_folder "$folder"
        # shellcheck disable=SC2016
        from_folder "$PAUSE_IMAGE" "$folder" \
            --entrypoint '["/bin/busybox","sh","-c","trap \"exit 0\" TERM INT; while :; do /bin/busybox sleep 1000000 & wait; done"]'
        save "$PAUSE_IMAGE" "$file"
        rm -rf "$folder"
    fi
    PAUSE_ARCHIVE="$file"

    key="$(content_key "$s3" "${BASH_SOURCE[0]}")"
    file="$(archive "$S3_IMAGE" "$key")"
    if [[ ! -f $file ]]; then
        say "building the S3 server's image"
        folder="$(mktemp -d "$BED/image.XXXXXX")"
        base_folder "$folder"
        copy_libraries "$folder" "$s3"
        mkdir -p "$folder/usr/local/bin"
        cp "$s3" "$folder/usr/local/bin/versitygw"
        from_folder "$S3_IMAGE" "$folder" --entrypoint '["/usr/local/bin/versitygw"]' --user 65532:65532
        save "$S3_IMAGE" "$file"
        rm -rf "$folder"
    fi
    S3_ARCHIVE="$file"
}

# What the Dockerfile builds on here: BASE_RUN has the libraries of the binaries, BASE_SHELL a shell that copies them.
local_bases() {
    local folder
    folder="$(mktemp -d "$BED/image.XXXXXX")"
    base_folder "$folder"
    local binary
    for binary in "$@"; do copy_libraries "$folder" "$binary"; done
    from_folder "$BASE_RUN" "$folder" --user 65532:65532
    rm -rf "$folder"
    busybox_folder "$folder"
    from_folder "$BASE_SHELL" "$folder"
    rm -rf "$folder"
}

# build_weir BINARY…: the images of what cargo built, tagged with their content, so that a changed binary is a changed
# image to Kubernetes. Sets NODE_TAG, OPERATOR_TAG and WEIR_ARCHIVES.
build_weir() {
    local context="" key binary target image file
    WEIR_ARCHIVES=()
    for binary in "$@"; do
        key="$(content_key "$binary" "$REPO/Dockerfile" "${BASH_SOURCE[0]}")"
        case ${binary##*/} in
            weir) target=node image=$NODE_IMAGE NODE_TAG="$key" ;;
            *) target=operator image=$OPERATOR_IMAGE OPERATOR_TAG="$key" ;;
        esac
        file="$(archive "$image" "$key")"
        WEIR_ARCHIVES+=("$file")
        [[ ! -f $file ]] || continue
        say "building the image of ${binary##*/}"
        if [[ -z $context ]]; then
            local_bases "$@"
            context="$(mktemp -d "$BED/image.XXXXXX")"
            mkdir "$context/prebuilt"
            cp "$REPO/Dockerfile" "$REPO/.dockerignore" "$context/"
        fi
        # One binary at a time: the other's change is no change of this image.
        rm -f "$context"/prebuilt/*
        strip -o "$context/prebuilt/${binary##*/}" "$binary"
        BUILDAH_ISOLATION=chroot buildah_ build --quiet --pull-never --target "$target" --tag "$image:$key" \
            --build-arg PREBUILT=prebuilt --build-arg "RUST_IMAGE=$BASE_SHELL" --build-arg "RUN_IMAGE=$BASE_RUN" \
            "$context" >>"$LOGS/images.log" 2>&1 || { tail -20 "$LOGS/images.log" >&2; fail "could not build the image of $target"; }
        save "$image:$key" "$file" "$image"
    done
    [[ -z $context ]] || rm -rf "$context" "$BED/buildah" "$BED/buildah-run"
}

# load HOST ARCHIVE…
load() {
    local host="$1" file
    shift
    for file in "$@"; do
        inside "$host" ctr -a /run/containerd/containerd.sock -n k8s.io images import "$file" >>"$LOGS/images.log" 2>&1 ||
            fail "could not load $file into $host; see $LOGS/images.log"
        [[ $file != "${PAUSE_ARCHIVE:-}" ]] || inside "$host" ctr -a /run/containerd/containerd.sock -n k8s.io images tag --force \
            "$PAUSE_IMAGE" "$TEST_IMAGE" >>"$LOGS/images.log" 2>&1 || fail "could not name $TEST_IMAGE in $host"
    done
}
