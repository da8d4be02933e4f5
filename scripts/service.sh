# Sourced by ./quickstart: installs the programs and runs the daemon, under systemd if available.

socket=/run/moorage/mooraged.sock

# The package's service has the same name and uses the same store.
refuse_package() {
  dpkg-query -W -f='${Status}' moorage 2>/dev/null | grep -q 'ok installed' || return 0
  fail "the Debian package moorage is installed and runs the daemon" \
    "use it (moorage info), or: apt-get remove moorage; workspaces are kept for ./quickstart"
}

install_programs() {
  step install
  cmake --install "$root/build/dev" --prefix /usr/local >"$root/build/install.log" 2>&1 ||
    { tail -n 5 "$root/build/install.log" >&2; fail "installing the programs failed" "the whole log is build/install.log"; }
  getent group moorage >/dev/null || groupadd --system moorage
  if [ -n "${SUDO_USER:-}" ] && [ "$SUDO_USER" != root ]; then usermod -aG moorage "$SUDO_USER"; fi
  done_step "/usr/local/bin/moorage, mooraged; group moorage"
}

daemon_answers() { /usr/local/bin/moorage version >/dev/null 2>&1 && [ -S "$socket" ] && /usr/local/bin/moorage info --json >/dev/null 2>&1; }

# The pid of the daemon that serves our socket, whoever started it; empty if there is none.
daemon_pid() {
  python3 -c '
import socket, struct, sys
daemon = socket.socket(socket.AF_UNIX)
try:
    daemon.connect(sys.argv[1])
except OSError:
    sys.exit(0)
print(struct.unpack("3i", daemon.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])' "$socket"
}

systemd_runs() { [ -d /run/systemd/system ]; }

launch_daemon() {
  if systemd_runs; then
    systemctl restart moorage 2>/dev/null || daemon_is_silent
  else
    mkdir -p /run/moorage /var/log/moorage
    # In a subshell, so that this shell does not report its end when the tour kills it.
    (setsid /usr/local/bin/mooraged >>/var/log/moorage/mooraged.log 2>&1 </dev/null &)
  fi
  wait_for_daemon
}

wait_for_daemon() {
  local i
  for i in $(seq 200); do
    daemon_answers && return 0
    sleep 0.05
  done
  daemon_is_silent
}

daemon_is_silent() {
  if systemd_runs; then journalctl -u moorage -n 10 --no-pager >&2; else tail -n 10 /var/log/moorage/mooraged.log >&2; fi
  fail "the daemon does not answer" "the last lines of its log are above"
}

stop_daemon() {
  local pid
  if systemd_runs; then systemctl stop moorage 2>/dev/null || true; return; fi
  pid=$(daemon_pid)
  [ -n "$pid" ] || return 0
  kill "$pid"
  while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
}

start_service() {
  step service
  if systemd_runs; then
    sed 's,/usr/bin/mooraged,/usr/local/bin/mooraged,' "$root/packaging/moorage.service" >/etc/systemd/system/moorage.service
    systemctl daemon-reload
    systemctl enable moorage >/dev/null 2>&1
    launch_daemon
    done_step "mooraged: running, starts at boot (systemd)"
  else
    stop_daemon
    launch_daemon
    done_step "mooraged: running, pid $(daemon_pid); no systemd here: after a boot: setsid mooraged &"
  fi
}

show_host() {
  step host
  done_step "$(/usr/local/bin/moorage info --json | python3 -c '
import json, sys
i = json.load(sys.stdin)
bad = [c for c in i["checks"] if not c["ok"]]
lxc = next(b for b in i["backends"] if b["name"] == "lxc")
print("kernel %s  cgroup %s  lxc %s  %d GiB free" % (i["kernel"], i["cgroup"], "ok" if lxc["usable"] else lxc["reason"], i["space"]["free_bytes"] >> 30))
for c in bad: print("           %s: %s" % (c["name"], c["text"]))')"
}
