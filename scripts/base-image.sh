#!/usr/bin/env bash
# Makes the build image from the local Go toolchain and module cache, for machines that
# cannot pull golang from a registry. Usage: scripts/base-image.sh [IMAGE]
set -euo pipefail
cd "$(dirname "$0")/.."
image=${1:-tidemark-golang:local}

root=$(go env GOROOT)
context=$(mktemp -d)
trap 'chmod -R u+w "$context" && rm -rf "$context"' EXIT

# Every module that go.mod names, as a proxy made of files.
GOMODCACHE="$context/mod" GOFLAGS=-modcacherw go mod download
mkdir -p "$context/proxy" "$context/tmp"
mv "$context/mod/cache/download" "$context/proxy/"
cp -a "$root" "$context/go"
rm -rf "$context/go/test" "$context/go/api" "$context/go/doc"

cat > "$context/Dockerfile" <<'INNER'
FROM scratch
COPY go /usr/local/go
COPY proxy /proxy
COPY tmp /tmp
ENV PATH=/usr/local/go/bin GOROOT=/usr/local/go GOPATH=/go HOME=/tmp \
    GOPROXY=file:///proxy/download GOSUMDB=off GOTOOLCHAIN=local
INNER
docker build --quiet --tag "$image" "$context"
echo "made $image; now: GO_IMAGE=$image docker compose up --build"
