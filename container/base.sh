#!/usr/bin/env bash
# A Debian base image made on this machine, for engines that reach no registry: container/base.sh [TAG]
# Needs root and debootstrap. The image trusts the certificate authorities this machine trusts; one made earlier is kept.
set -euo pipefail
tag=${1:-barnabas-base:bookworm}
if docker image inspect "$tag" >/dev/null 2>&1; then
  echo "$tag"
  exit
fi
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3 bookworm "$root" >/dev/null
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
tar -C "$root" -c . | docker import - "$tag" >/dev/null
echo "$tag"
