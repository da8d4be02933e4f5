# Sourced by ./quickstart: shows the main job on a real repository, and checks that nothing was lost.

tour=tour
tour_user=root

# The tour belongs to the user who called sudo: git trusts their checkout, and they keep the workspace.
choose_tour_user() {  # choose_tour_user SOURCE
  local owner=${SUDO_USER:-root}
  [ ! -e "$1" ] || owner=$(stat -c %U "$1")
  if [ "$owner" = "${SUDO_USER:-root}" ]; then tour_user=$owner; fi
}

moorage() { if [ "$tour_user" = root ]; then /usr/local/bin/moorage "$@"; else sudo -u "$tour_user" -- /usr/local/bin/moorage "$@"; fi; }

kill_everything() {  # kill -9: the daemon, the sandbox's process 1, LXC's monitor
  local pid name store
  name=$(moorage show "$tour" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["sandbox"]["id"])')
  store=$(moorage info --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["store_id"])')
  if systemd_runs; then pid=$(systemctl show -p MainPID --value moorage); else pid=$(daemon_pid); fi
  if systemd_runs; then systemctl kill -s KILL moorage; else kill -9 "$pid"; fi
  for pid in $(sandbox_pids "$store-$name"); do kill -9 "$pid" 2>/dev/null || true; done
}

# Host pids in this sandbox's control group; its name includes the store id, as ids repeat in other stores.
sandbox_pids() {
  grep -lsE -- "moorage-$1(/|\$)" /proc/[0-9]*/cgroup 2>/dev/null | cut -d/ -f3
}

# The id of the tour user's own workspace of that name: root also sees those of other users.
earlier_tour() {
  moorage ls --json | python3 -c '
import json, sys
for w in json.load(sys.stdin)["workspaces"]:
    if w["name"] == sys.argv[1] and w["owner"] == int(sys.argv[2]): print(w["id"])' "$tour" "$(id -u "$tour_user")"
}

# Removes it and its forks; the tree shows forks that were deleted since, too.
remove_earlier() {  # remove_earlier ID
  local ids
  ids=$(moorage tree "$1" --json | python3 -c '
import json, sys
for w in json.load(sys.stdin)["workspaces"]:
    left = w["state"] in ("ready", "archived")
    if left and "forked_from" in w and w["name"].startswith(sys.argv[1] + "-"): print(w["id"])' "$tour")
  for id in $ids "$1"; do moorage rm "$id" >/dev/null; done
}

create_tour() {
  local log="$root/build/tour.create"
  moorage create "$@" --name "$tour" >"$log" 2>&1 || { cat "$log" >&2; fail "cannot create the workspace" "see the lines above"; }
}

run_tour() {
  local source=$1 exec_id lines earlier fork
  choose_tour_user "$source"
  earlier=$(earlier_tour)
  if [ -n "$earlier" ]; then remove_earlier "$earlier"; fi

  step create
  case $source in
    *://*|*@*:*) create_tour --repo "$source" ;;
    *) create_tour --from "$source" ;;
  esac
  done_step "workspace $tour from $source (first time: with clone and checkout)"
  if [ -n "$earlier" ]; then
    printf ' %-9s%s\n' earlier "the $tour before is deleted, with its forks; for a week: moorage undelete $earlier --name $tour-earlier"
  fi

  step exec
  lines=$(moorage exec "$tour" -- bash -c 'echo "a note" > NOTES-FROM-THE-AGENT; echo "kept at home" > ~/note; git ls-files | wc -l')
  done_step "in a sandbox: $lines tracked files seen, two files written"

  step kill
  exec_id=$(moorage exec "$tour" --detach -- bash -c 'i=0; while :; do i=$((i + 1)); echo "line $i" >>agent.log; echo "line $i"; done')
  sleep 1
  kill_everything
  done_step "kill -9 of daemon, sandbox and LXC in the middle of $exec_id"

  step resume
  # systemd restarts it.
  if systemd_runs; then wait_for_daemon; else launch_daemon; fi
  moorage exec "$tour" -- bash -c '
    set -e
    [ "$(cat NOTES-FROM-THE-AGENT)" = "a note" ] && [ "$(cat ~/note)" = "kept at home" ]
    wc -l < agent.log' >"$root/build/tour.lines" || fail "the workspace lost files"
  moorage logs "$tour" "$exec_id" >"$root/build/tour.log" 2>&1 || true
  prove_log "$(cat "$root/build/tour.lines")"
  done_step "same workspace, new sandbox: both files there; $proof"

  step diff
  moorage exec "$tour" -- rm -f agent.log
  done_step "moorage diff $tour --stat:"
  moorage diff "$tour" --stat | sed 's/^/           /'

  step fork
  fork=$tour-scratch
  moorage fork "$tour" "$fork" >/dev/null
  moorage exec "$fork" -- bash -c '[ "$(cat NOTES-FROM-THE-AGENT)" = "a note" ] && rm -rf ./*' || fail "the fork differs from $tour"
  moorage exec "$tour" -- test -e NOTES-FROM-THE-AGENT || fail "the fork changed $tour"
  done_step "$fork had all of it, and removed all of it: $tour did not notice"

  step best-of
  moorage best-of "$tour" --count 3 --each 'seq $((4 - {i})) > ANSWER' --test 'grep -x 2 ANSWER' --promote smallest-diff \
    >"$root/build/tour.best-of" 2>&1 || { cat "$root/build/tour.best-of" >&2; fail "no attempt passed"; }
  [ "$(moorage exec "$tour" -- cat ANSWER | tr '\n' ' ')" = "1 2 " ] || fail "another attempt was promoted"
  done_step "three attempts at an ANSWER that has a 2, the smallest that passes becomes $tour:"
  sed 's/^/           /' "$root/build/tour.best-of"
  moorage tree "$tour" | sed 's/^/           /'

  step stop
  moorage stop "$tour" >/dev/null
  done_step "files kept; the next exec starts it again"
}

# Output in the journal must be line 1, 2, 3... without a gap; each line went to the file first.
prove_log() {  # prove_log LINES-IN-FILE: sets proof
  local journal
  journal=$(grep -c '^line ' "$root/build/tour.log" || true)
  [ "$journal" -gt 0 ] || fail "the output of the killed command is missing"
  awk '/^line / { n++; if ($2 != n) exit 1 }' "$root/build/tour.log" || fail "the output has a gap"
  [ "$1" -ge "$journal" ] || fail "the file has $1 lines, but the output has $journal"
  proof="$journal lines of output, no gap, $1 in its file"
}

next_steps() {
  printf ' %-9s%s\n' next "moorage exec $tour -- bash -c 'echo hello' | moorage shell $tour | moorage ls | moorage --help"
  if [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then
    printf ' %-9s%s\n' you "added to group moorage; open a new shell"
  fi
}
