#!/bin/sh
# The admin API of an agent by curl: pulls an image and shows its progress, lists pulls and images, removes the image.
# usage: api.sh SOCKET IMAGE   for example api.sh /var/lib/imagelet/admin.sock docker.io/library/busybox:1
set -eu
socket=$1
image=$2

api() {
    curl --silent --show-error --fail-with-body --unix-socket "$socket" "$@"
}

echo "# the agent"
api http://imagelet/v1/version

echo "# a pull, as it goes"
api --no-buffer -H 'Accept: text/event-stream' -d "{\"image\": \"$image\"}" http://imagelet/v1/images/pull

echo "# pulls that run, and the last that ended"
api http://imagelet/v1/pulls

echo "# the image"
api --get --data-urlencode "image=$image" http://imagelet/v1/images

echo "# its removal"
query=$(printf %s "$image" | sed 's/%/%25/g; s/&/%26/g; s/+/%2B/g; s/#/%23/g')
api -X POST "http://imagelet/v1/images/remove?image=$query"
