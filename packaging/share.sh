#!/bin/sh
# Writes manual pages and completion scripts to where packages have them: packaging/share.sh PROGRAM DESTDIR
set -eu
program=$1
share=$2/usr/share
"$program" man "$share/man" >/dev/null
gzip -9nf "$share"/man/man1/*.1 "$share"/man/man5/*.5
write() {
    mkdir -p "$share/$2"
    "$program" completion "$1" >"$share/$2/$3"
}
write bash bash-completion/completions imagelet
write zsh zsh/vendor-completions _imagelet
write fish fish/vendor_completions.d imagelet.fish
