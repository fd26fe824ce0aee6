#!/bin/sh
# Writes after each tag of the images, in Dockerfile and docker-compose.yml, the digest that the registry has for it now:
# a tag can be moved, a digest cannot. Asks the registry through Docker; changes nothing unless it answers for each.
set -eu
images=$(sed -nE 's/^(FROM|    image:) ([a-z0-9./-]+:[A-Za-z0-9._-]+).*/\2/p' Dockerfile docker-compose.yml | sort -u)
script=$(mktemp)
trap 'rm -f "$script"' EXIT
for image in $images; do
  digest=$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$image")
  echo "$digest" | grep -qxE 'sha256:[0-9a-f]{64}' || { echo "no digest of $image: $digest" >&2; exit 1; }
  printf '%s\n' "s#^(FROM|    image:) $image(@sha256:[0-9a-f]{64})?( |\$)#\\1 $image@$digest\\3#" >> "$script"
done
sed -E -i.before -f "$script" Dockerfile docker-compose.yml
rm Dockerfile.before docker-compose.yml.before
