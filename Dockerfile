# Images of Weir: `--target node` (weir) and `--target operator` (weir-operator). Both run as user 65532, write nowhere
# in their own filesystem, and hold one binary.
#
#   docker build --target node -t weir .
#   docker build --target operator -t weir-operator .      # with what the first has built
#   buildah build --layers --target node -t weir .         # without --layers the second would build all of it again
#
# RUN_IMAGE has glibc 2.36 or newer, libgcc_s and certificate authorities at /etc/ssl/certs, and need have no shell.
ARG RUST_IMAGE=docker.io/library/rust:1.95-bookworm
ARG RUN_IMAGE=gcr.io/distroless/cc-debian12:nonroot

# First, so that a base that is not to be had is known before anything is built.
FROM ${RUN_IMAGE} AS run

FROM ${RUST_IMAGE} AS binaries
# A folder of the context with `weir` and `weir-operator`, built before; empty: they are built here.
ARG PREBUILT=""
# Features of cargo that both packages have.
ARG FEATURES=""
WORKDIR /src
COPY . .
# One after the other, as they are tested: built at once each would have what only the other wants of its dependencies.
RUN mkdir -p /out/data; \
    if [ -n "$PREBUILT" ]; then cp "$PREBUILT"/weir* /out/; exit; fi; \
    for bin in weir weir-operator; do \
        cargo build --locked --release --package "$bin" --bin "$bin" ${FEATURES:+--features "$FEATURES"} && \
        strip -o "/out/$bin" "target/release/$bin" || exit 1; \
    done; \
    rm -rf target

FROM run AS node
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="Durable append-only streams over HTTP: a node, and the command line" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=binaries /out/weir /usr/local/bin/weir
# A volume is to be mounted here; one that docker makes takes over whose the folder is.
COPY --from=binaries --chown=65532:65532 /out/data /var/lib/weir
# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
ENV WEIR_DATA_DIR=/var/lib/weir WEIR_LISTEN=0.0.0.0:4437
EXPOSE 4437 4438 9090
ENTRYPOINT ["/usr/local/bin/weir"]
CMD ["serve"]

FROM run AS operator
LABEL org.opencontainers.image.title="weir-operator" \
      org.opencontainers.image.description="Runs Weir clusters on Kubernetes from StreamCluster resources" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=binaries /out/weir-operator /usr/local/bin/weir-operator
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/weir-operator"]
