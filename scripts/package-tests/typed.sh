#!/usr/bin/env bash
# Types the commands of a page as they stand there: every block `sh`. A block `text` behind one has lines that its output must have in this
# order; an ellipsis stands for anything. Sourced by tasks.sh and fleet.sh, inside of the node.
set -euo pipefail

steps=/srv/test/steps

fits() { # fits OUTPUT WANTED   prints the first line that is missing
  local wanted pattern line
  exec 3<"$1"
  while IFS= read -r wanted; do
    # Everything but the ellipsis stands for itself; blanks of tables are as many as it takes.
    pattern=$(sed -e 's/[][\\*?]/\\&/g' -e 's/ \{1,\}/ /g' -e 's/…/*/g' <<<"$wanted")
    while :; do
      IFS= read -r line <&3 || { echo "$wanted"; exec 3<&-; return 1; }
      line=$(sed -e 's/ \{1,\}/ /g' -e 's/ $//' <<<"$line")
      # shellcheck disable=SC2254
      case $line in $pattern) break ;; esac
    done
  done <"$2"
  exec 3<&-
}

type_page() { # type_page PAGE [AFTER]   AFTER is called with the name of each step that passed
  local page=$1 after=${2:-:} count step missing
  rm -rf "$steps"
  mkdir "$steps"
  awk -v to="$steps/" '
    !open && /^```sh$/ { n++; file = sprintf("%s%02d.sh", to, n); open = 1; next }
    !open && /^```text$/ { file = sprintf("%s%02d.text", to, n); open = 1; next }
    open && /^```$/ { close(file); open = 0; next }
    open { print > file }
  ' "$page"
  count=$(find "$steps" -name '*.sh' | wc -l)
  [ "$count" -ge 4 ] || { echo "$page: only $count blocks of commands" >&2; exit 1; }
  # What a page exports holds for its later commands.
  : >"$steps/environment"
  for step in "$steps"/*.sh; do
    echo "$page: $(head -1 "$step")"
    { echo "set -e"; cat "$steps/environment" "$step"; } >"$steps/now"
    timeout 180 bash "$steps/now" </dev/null >"$steps/out" 2>&1 || { echo "$page: this failed:" >&2; cat "$step" "$steps/out" >&2; exit 1; }
    if [ -e "${step%.sh}.text" ]; then
      missing=$(fits "$steps/out" "${step%.sh}.text") || { echo "$page: the output has not: $missing" >&2; cat "$steps/out" >&2; exit 1; }
    fi
    grep '^export ' "$step" >>"$steps/environment" || true
    "$after" "$page:$(basename "$step")"
  done
}
