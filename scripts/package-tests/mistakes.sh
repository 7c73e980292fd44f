#!/usr/bin/env bash
# What new users type between the steps of a page, by habit or by mistake, with the exit code and the line that helps. Sourced by tasks.sh.
set -euo pipefail

answers() { # answers CODE WANTED COMMAND…   the command ends with CODE, and a line of its output has WANTED
  local code=0 want=$1 line=$2
  shift 2
  echo "  mistake: $*"
  timeout 60 "$@" </dev/null >/srv/test/out 2>&1 || code=$?
  if [ "$code" -ne "$want" ] || ! grep -qF -e "$line" /srv/test/out; then
    echo "$*: exit code $code, wanted $want and: $line" >&2
    cat /srv/test/out >&2
    exit 1
  fi
}

mistakes_of_pulls() { # imagelet-serve runs over containerd
  local containerd=unix:///run/containerd/containerd.sock image=docker.io/library/busybox:1.36
  # Without -i: the images of the agent, and one line says so.
  answers 0 "using the images of $containerd" imagelet pull busybox:1.36
  answers 0 "docker.io/library/busybox" imagelet images
  answers 0 "using the images of $containerd" imagelet df
  answers 0 "Pull engine: embedded: it fills containerd's snapshotter" imagelet status
  answers 0 "Pull engine: embedded: it fills containerd's snapshotter" imagelet status -i unix:///run/imagelet/imagelet.sock
  answers 0 "pullEngine=embedded: it fills containerd's snapshotter" imagelet explain -i unix:///run/imagelet/imagelet.sock busybox:1.36
  # With containerd's own socket.
  answers 0 "CREATED" imagelet history -i "$containerd" busybox:1.36
  answers 0 "busybox" imagelet ls -i "$containerd" busybox:1.36 /bin
  answers 1 "ctr -n k8s.io images tag" imagelet tag -i "$containerd" busybox:1.36 mine:1
  answers 1 "imagelet --root /var/lib/imagelet save" imagelet save -i "$containerd" busybox:1.36 -o /srv/test/saved.tar
  # Habits of docker, podman, nerdctl and crictl.
  answers 2 "write the name without docker://" imagelet pull docker://busybox:1.36
  answers 2 "everything is listed without it" imagelet images -a
  answers 2 "Go templates are not supported" imagelet inspect -f '{{.Id}}' busybox:1.36
  answers 2 "removals need no confirmation" imagelet rmi -f busybox
  answers 2 "imagelet run -f FILE" imagelet run --rm busybox
  answers 2 "imagelet history IMAGE" imagelet diff busybox
  answers 2 "imagelet run -f FILE" imagelet kube play pod.yaml
  answers 2 "commands about images stand alone" imagelet image exists busybox:1.36
  answers 2 "-o json" imagelet version --json
  answers 2 "--watch waits for more" imagelet events --since 1h
  # Both spellings of a path in an image.
  answers 0 "" imagelet cat busybox:1.36:/bin/busybox
  answers 0 "" imagelet cp busybox:1.36 /bin/busybox /srv/test/copied
  # A short name that has one tag.
  answers 0 "" imagelet pull --platform linux/amd64 busybox:1.36
  answers 0 "sha256:" imagelet rmi busybox
  answers 0 "" imagelet pull busybox:1.36
  # Collection.
  answers 0 "in use by a pull" imagelet gc --dry-run --all-unused
  answers 0 "The goal cannot be reached" imagelet gc --dry-run --until-free 1000TiB
}

mistakes_of_pods() { # imagelet runs pods
  # No network.
  mv /etc/cni/net.d/10-pods.conflist /srv/test/
  systemctl restart containerd
  sleep 2
  pod lost busybox:1.36
  until imagelet describe lost 2>&1 | grep -q 'hostNetwork'; do sleep 1; done
  answers 0 "/etc/cni/net.d" imagelet describe lost
  answers 1 "CNI" imagelet doctor
  rm /etc/imagelet/manifests/lost.yaml
  mv /srv/test/10-pods.conflist /etc/cni/net.d/
  systemctl restart containerd
  # An image that no registry has.
  pod absent busybox:9.9
  until imagelet pods | grep -q 'ImagePullBackOff\|ErrImagePull'; do sleep 1; done
  answers 1 "busybox:9.9" imagelet logs absent
  # A kind that a node does not run.
  printf 'apiVersion: v1\nkind: Service\nmetadata: {name: web}\n' >/etc/imagelet/manifests/service.yaml
  sleep 2
  answers 0 "absent" imagelet pods
  rm /etc/imagelet/manifests/{absent,service}.yaml
}

pod() { # pod NAME IMAGE
  printf 'apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec:\n  containers: [{name: c, image: "%s", command: [sleep, "1000"]}]\n' "$1" "$2" \
    >"/etc/imagelet/manifests/$1.yaml"
}
