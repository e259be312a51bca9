# Two small images from source: the binary, and the NATS server at the version go.mod pins.
# Where no registry can be reached, scripts/base-image.sh makes GO_IMAGE from the local Go.
# Few steps on purpose: some storage drivers copy the whole build image for every one.
ARG GO_IMAGE=golang:1.26

FROM ${GO_IMAGE} AS build
COPY . /src
WORKDIR /src
ENV CGO_ENABLED=0
RUN ["go", "build", "-trimpath", "-o", "/out/", "./cmd/tidemark", "github.com/nats-io/nats-server/v2"]

FROM scratch AS nats
COPY --from=build /out/nats-server /out/tidemark /
COPY deploy/nats/nats.conf /nats.conf
COPY --chown=65532:65532 deploy/empty /data
USER 65532:65532
ENTRYPOINT ["/nats-server", "-c", "/nats.conf"]

FROM scratch AS tidemark
COPY --from=build /out/tidemark /tidemark
COPY --chown=65532:65532 deploy/empty /state
USER 65532:65532
ENTRYPOINT ["/tidemark"]
