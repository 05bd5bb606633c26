# shellcheck shell=bash
# A registry of images within the bed, which makes it a cluster such as users have: for `make up CONTEXT=… REGISTRY=…`.
#
# Everybody knows it as localhost:$REGISTRY_PORT: whoever pushes reaches it there, on this machine through a door as the API
# server has one, and the hosts are told where that is for them. It forgets all with the bed.

registry_up() {
    local image name server
    bed_is_up || fail "there is no bed: $BED_SOURCE/bed up"
    REGISTRY="localhost:$REGISTRY_PORT"
    if ! recorded registry >/dev/null; then
        say "starting a registry, $REGISTRY"
        start control registry "$BIN/registry" ":$REGISTRY_PORT"
        wait_for 30 "the registry" inside control curl -fsS --max-time 2 "http://127.0.0.1:$REGISTRY_PORT/v2/" ||
            fail "see $LOGS/registry.log"
    fi
    # Tests, which `bed run` has put into the network of `control`, are there already.
    [[ /proc/self/ns/net -ef /proc/$(recorded control)/ns/net ]] || recorded registry-door >/dev/null || start_registry_door
    server="http://$(at "$CONTROL_IP" "$REGISTRY_PORT")"
    mkdir -p "$REGISTRIES/$REGISTRY"
    cat >"$REGISTRIES/$REGISTRY/hosts.toml" <<END
server = "$server"
[host."$server"]
capabilities = ["pull", "resolve"]
END
    # In place of the Dockerfile's bases, which are in registries that may be out of reach.
    build_binaries
    local_bases "${BINARIES[@]}"
    for image in "$BASE_RUN" "$BASE_SHELL"; do
        name="$REGISTRY/${image#*/}"
        buildah_ push --quiet --tls-verify=false "$image" "docker://$name" >>"$LOGS/images.log" 2>&1 ||
            fail "could not push $name; see $LOGS/images.log"
    done
    rm -rf "$BED/buildah" "$BED/buildah-run"
    printf 'export REGISTRY=%q RUST_IMAGE=%q RUN_IMAGE=%q\n' \
        "$REGISTRY" "$REGISTRY/${BASE_SHELL#*/}" "$REGISTRY/${BASE_RUN#*/}"
}

start_registry_door() {
    start control registry-door-inside socat "UNIX-LISTEN:$BED/registry.sock,fork,mode=600,unlink-early" "TCP:127.0.0.1:$REGISTRY_PORT"
    wait_for 5 "the registry's socket" test -S "$BED/registry.sock" || fail "see $LOGS/registry-door-inside.log"
    start door registry-door socat "TCP-LISTEN:$REGISTRY_PORT,bind=127.0.0.1,fork,reuseaddr" "UNIX-CONNECT:$BED/registry.sock"
    wait_for 5 "port $REGISTRY_PORT" curl -fsS --max-time 2 "http://127.0.0.1:$REGISTRY_PORT/v2/" &&
        recorded registry-door >/dev/null ||
        fail "port $REGISTRY_PORT on loopback is not ours: set BED_REGISTRY_PORT to a free one"
}
