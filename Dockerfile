# Two small images from source: the binary, and the NATS server at the version go.mod pins.
# Where no registry can be reached, scripts/base-image.sh makes GO_IMAGE from the local Go.
ARG GO_IMAGE=golang:1.26

FROM ${GO_IMAGE} AS build
WORKDIR /empty
WORKDIR /src
ENV CGO_ENABLED=0
COPY go.mod go.sum ./
COPY pkg pkg
COPY internal internal
COPY services services
COPY cmd cmd
COPY examples/orders examples/orders
RUN ["go", "build", "-trimpath", "-o", "/out/tidemark", "./cmd/tidemark"]
RUN ["go", "build", "-trimpath", "-o", "/out/nats-server", "github.com/nats-io/nats-server/v2"]

FROM scratch AS nats
COPY --from=build /out/nats-server /nats-server
COPY --from=build /out/tidemark /tidemark
COPY deploy/nats/nats.conf /nats.conf
COPY --from=build --chown=65532:65532 /empty /data
USER 65532:65532
ENTRYPOINT ["/nats-server", "-c", "/nats.conf"]

FROM scratch AS tidemark
COPY --from=build /out/tidemark /tidemark
COPY --from=build --chown=65532:65532 /empty /state
USER 65532:65532
ENTRYPOINT ["/tidemark"]
