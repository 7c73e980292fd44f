#!/usr/bin/env bash
# The life of the package on a node: installed, used, upgraded, removed, installed again, purged. Runs inside of it, from scripts/package-tests.sh.
set -euo pipefail
cd /srv/test

units=(imagelet.service imagelet-serve.service imagelet-serve.socket imagelet-mounts.service)
new=$(echo imagelet_*.deb)
expect() { # expect WHAT COMMAND…
  local what=$1
  shift
  if "$@" >/srv/test/last 2>&1; then echo "ok: $what"; else echo "not so: $what ($*)" >&2; cat /srv/test/last >&2; exit 1; fi
}
not() { ! "$@"; }
process() { systemctl show -P MainPID imagelet-serve.service; }
own() { imagelet --root /var/lib/imagelet "$@"; } # and not the images of the agent that runs
pull() { imagelet pull -q -i unix:///run/imagelet/imagelet.sock "$1"; }
installed() { # what dpkg put there, but directories
  dpkg -L imagelet | while read -r path; do if [ ! -d "$path" ]; then echo "$path"; fi; done
}

dpkg -i older.deb >/dev/null
for unit in "${units[@]}"; do
  expect "$unit is there and disabled" test "$(systemctl is-enabled "$unit")" = disabled
  expect "$unit does not run" not systemctl is-active --quiet "$unit"
done
expect "the program runs" imagelet version
expect "its settings are good" imagelet config
for file in /usr/share/man/man1/imagelet-serve.1.gz /usr/share/bash-completion/completions/imagelet /usr/share/doc/imagelet/examples/config.yaml; do
  expect "$file is there" test -s "$file"
done
expect "every file is there" bash -c 'for file in "$@"; do [ -e "$file" ] || { echo "$file"; exit 1; }; done' - $(installed | grep -v -e /usr/share/doc -e /usr/share/man)
expect "systemd reads the units without a complaint" systemd-analyze verify "${units[@]}"
expect "systemd says nothing about them" test ! -s /srv/test/last
for unit in imagelet.service imagelet-serve.service; do
  expect "$unit is exposed no more than before" systemd-analyze security --no-pager --threshold=62 "$unit"
done

echo "# mine" >>/etc/imagelet/config.yaml
systemctl enable -q --now imagelet-serve.socket imagelet-serve.service
expect "an image is pulled" pull docker.io/library/busybox:1.36
mkdir -p /etc/imagelet/manifests
echo "not a pod" >/etc/imagelet/manifests/README
own pull -q docker.io/library/busybox:1.36 >/srv/test/image
expect "imagelet's own store has one, too" test "$(own images -q | wc -l)" = 1
expect "without --root, the images are containerd's" grep -q 'using the images of unix:///run/containerd/containerd.sock' <(imagelet images 2>&1)
before=$(process)

dpkg -i --force-confold "$new" >/srv/test/upgraded
expect "the upgrade has restarted what ran" test "$(process)" != "$before"
expect "and started nothing else" not systemctl is-active --quiet imagelet.service
expect "it runs the new program" test "$(readlink "/proc/$(process)/exe")" = /usr/bin/imagelet
expect "what was enabled is so" systemctl is-enabled imagelet-serve.service
expect "settings are as they were" grep -q '# mine' /etc/imagelet/config.yaml
expect "the image is there" test "$(own images -q | wc -l)" = 1
expect "it serves" pull docker.io/library/busybox:1.36

# A layer that must be mounted when the machine starts: the package stays until it is converted.
mkdir -p /srv/test/layers/1 /var/lib/imagelet/mounted-layers
ln -s mnt/root /srv/test/layers/1/fs
ln -s /srv/test/layers /var/lib/imagelet/mounted-layers/fs.0
expect "a removal is refused while layers are EROFS files" not dpkg -r imagelet
cp /srv/test/last /srv/test/refusal # each expectation writes it again
expect "and names the command" grep -q 'imagelet --root /var/lib/imagelet convert .* --to dir --all' /srv/test/refusal
rm -r /srv/test/layers

dpkg -r imagelet >/dev/null
for unit in "${units[@]}"; do expect "a removal ends $unit" not systemctl is-active --quiet "$unit"; done
expect "and keeps settings" grep -q '# mine' /etc/imagelet/config.yaml
expect "and images" test -d /var/lib/imagelet

dpkg -i "$new" >/dev/null
expect "installed again, the image is there" test "$(own images -q | wc -l)" = 1
dpkg -P imagelet >/srv/test/purged
expect "a purge says which directories it leaves" grep -q 'rm -r /var/lib/imagelet$' /srv/test/purged
expect "it leaves images" test -d /var/lib/imagelet
expect "and manifests" test -f /etc/imagelet/manifests/README
expect "but no settings" test ! -e /etc/imagelet/config.yaml
expect "and no unit that is enabled" bash -c '! find /etc/systemd/system -lname "*imagelet*" | grep .'
rm -rf /etc/imagelet /var/lib/imagelet /var/lib/imagelet-serve
ctr -n k8s.io images rm docker.io/library/busybox:1.36 >/dev/null
