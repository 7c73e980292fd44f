#!/usr/bin/env bash
# Makes a Kubernetes control plane for the tests, and prints the directory of its programs: kube-apiserver, kube-controller-manager,
# kube-scheduler, etcd, kubectl. Installs nothing: Kubernetes is built from Debian's source package, etcd and kubectl are unpacked.
# The directory lies in ${XDG_CACHE_HOME:-~/.cache}/imagelet/control-plane, named by the package's version, and is kept: `rm -r` makes
# the next run build it again. With KUBEBUILDER_ASSETS=DIR, as envtest has it, nothing is built and DIR is printed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/apt-lib.sh

# Counted up when this script makes something else of the same package.
recipe=1
components=(kube-apiserver kube-controller-manager kube-scheduler)

say() { echo "control-plane: $*" >&2; }

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  for program in kube-apiserver etcd; do
    [ -x "$KUBEBUILDER_ASSETS/$program" ] || { say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS: $program is not there"; exit 1; }
  done
  realpath "$KUBEBUILDER_ASSETS"
  exit 0
fi

place=${XDG_CACHE_HOME:-$HOME/.cache}/imagelet/control-plane
mkdir -p "$place"
exec 9>"$place/lock"
flock 9

complete() { # prints a directory that is there; it came there whole
  find "$place" -maxdepth 1 -name "[0-9]*_$recipe" -type d | sort | tail -1
}

from_suite() { # from_suite SUITE   apt of this suite from here on
  apt_of "$1" "$work/$1"
  export APT_CONFIG=$work/$1/apt.conf
  mkdir -p "$work/$1/packages"
  cd "$work/$1/packages"
  apt-get update -qq
}

attempt() { # attempt LOG COMMAND…   sets `result`; called by itself, since a shell does not stop at failures in a condition
  local log=$1
  shift
  set +e
  (set -e; "$@") >"$log" 2>&1
  result=$?
  set -e
}

fetch_kubectl() { # fetch_kubectl SUITE PACKAGE   into $made, if it runs here
  from_suite "$1"
  apt-get download -qq "$2"
  dpkg -x "$2"_*.deb "$work/$1/kubectl"
  install -m 755 "$work/$1/kubectl/usr/bin/kubectl" "$made/kubectl"
  "$made/kubectl" version --client
}

fetch() { # what is built, and what builds it, into $work/bookworm
  from_suite bookworm
  apt-get download -qq golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server
  apt-get source -qq --download-only kubernetes
  local package
  for package in *.deb; do dpkg -x "$package" "$work/unpacked"; done
  mkdir -p "$sources"
  tar -xzf kubernetes_*.orig.tar.gz --strip-components=1 -C "$sources"
  # reflect2 1.0.1 reads the memory layout of maps, which Go 1.18 changed: it crashes at the first custom object. Debian has 1.0.2.
  rm -rf "$sources/vendor/github.com/modern-go/reflect2"
  cp -r "$work/unpacked/usr/share/gocode/src/github.com/modern-go/reflect2" "$sources/vendor/github.com/modern-go/"
  install -m 755 "$work/unpacked/usr/bin/etcd" "$made/etcd"
}

build() { # build VERSION   the components, static, into $made
  local version=$1 stamp="-s -w" package
  export GOROOT=$work/unpacked/usr/lib/go-1.19 GOPATH=$work/go GOCACHE=$work/gocache HOME=$work GO111MODULE=off CGO_ENABLED=0
  export PATH=$GOROOT/bin:$PATH
  cd "$sources"
  # The sources lack one generated file, and have its generator. Its input is every package that asks for it.
  go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  local input
  input=$(find -L vendor/k8s.io pkg \( -path '*/code-generator' -o -path '*/sample-apiserver' -o -path '*/kube-openapi' \) -prune \
    -o -name '*.go' -exec grep -l '+k8s:openapi-gen=' {} + | xargs -n 1 dirname | LC_ALL=C sort -u | sed 's|^|k8s.io/kubernetes/|')
  "$work/openapi-gen" --logtostderr --input-dirs "${input//$'\n'/,}" --output-package k8s.io/kubernetes/pkg/generated/openapi \
    --output-file-base zz_generated.openapi --go-header-file vendor/k8s.io/code-generator/hack/boilerplate.go.txt --report-filename /dev/null
  for package in component-base/version client-go/pkg/version; do
    package=k8s.io/kubernetes/vendor/k8s.io/$package
    stamp+=" -X $package.gitVersion=v$version -X $package.gitMajor=${version%%.*} -X $package.gitMinor=$(cut -d. -f2 <<<"$version")"
  done
  go build -ldflags "$stamp" -o "$made/" "${components[@]/#/./cmd/}"
}

make_it() {
  work=$(mktemp -d "$place/.building.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  made=$work/made
  sources=$work/go/src/k8s.io/kubernetes
  mkdir -p "$made"
  local free package upstream from
  free=$(df --output=avail -BG "$place" | tr -dc '0-9\n' | tail -1)
  [ "$free" -ge 5 ] || say "only $free GiB are free in $place; the build takes about 4"
  attempt "$work/fetched" fetch
  [ "$result" -eq 0 ] || { cat "$work/fetched" >&2; say "Debian's packages cannot be had"; exit 1; }
  package=$(sed -n 's/^Version: //p' "$work"/bookworm/packages/kubernetes_*.dsc)
  # 1.20.5+really1.20.2-1.1+deb12u1 has Kubernetes 1.20.2 in it.
  upstream=${package##*really}
  upstream=${upstream%%-*}
  for from in "sid kubectl" "trixie kubectl" "bookworm kubernetes-client"; do
    attempt "$work/fetched" fetch_kubectl "${from% *}" "${from#* }"
    [ "$result" -ne 0 ] || break
    say "no ${from#* } of ${from% *}: $(tail -1 "$work/fetched")"
  done
  [ "$result" -eq 0 ] || exit 1
  say "building Kubernetes $upstream of Debian's $package once: about 4 minutes on two idle cores"
  local begun=$SECONDS
  attempt "$work/built" build "$upstream"
  [ "$result" -eq 0 ] || { tail -40 "$work/built" >&2; say "the build failed"; exit 1; }
  say "built in $((SECONDS - begun)) s"
  mv "$made" "$place/${package}_$recipe"
}

directory=$(complete)
if [ -z "$directory" ]; then
  make_it
  directory=$(complete)
fi
say "$("$directory/kube-apiserver" --version), $("$directory/etcd" --version | head -1), kubectl $("$directory/kubectl" version --client 2>/dev/null | sed -n 's/.*\(v1\.[0-9.]*\).*/\1/p' | head -1)"
echo "$directory"
