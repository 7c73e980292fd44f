#!/usr/bin/env bash
# Types the commands of docs/tasks as they stand there: every block `sh`. A block `text` behind one has lines that its output must have in this
# order; an ellipsis stands for anything. In between, mistakes.sh types what new users type wrong. Runs inside of the node, from
# scripts/package-tests.sh.
set -euo pipefail
cd /srv/test

pages=(tasks/pull-faster.md tasks/never-fill-the-disk.md tasks/run-pods.md)
steps=/srv/test/steps
# shellcheck source=mistakes.sh
. ./mistakes.sh

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

for page in "${pages[@]}"; do
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
    timeout 120 bash "$steps/now" </dev/null >"$steps/out" 2>&1 || { echo "$page: this failed:" >&2; cat "$step" "$steps/out" >&2; exit 1; }
    if [ -e "${step%.sh}.text" ]; then
      missing=$(fits "$steps/out" "${step%.sh}.text") || { echo "$page: the output has not: $missing" >&2; cat "$steps/out" >&2; exit 1; }
    fi
    grep '^export ' "$step" >>"$steps/environment" || true
    case $page:$(basename "$step") in
      tasks/pull-faster.md:04.sh) mistakes_of_pulls ;;
      tasks/run-pods.md:02.sh) mistakes_of_pods ;;
    esac
  done
  systemctl disable -q --now imagelet-serve.socket imagelet-serve.service
done
systemctl disable -q --now imagelet.service
