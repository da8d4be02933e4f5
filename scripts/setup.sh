# Sourced by ./check, ./quickstart and scripts/package.sh: installs packages and builds, with a progress line for each.
# Needs: bash, root, apt. Changes nothing on the host but Debian packages.

packages_build=(g++ cmake ninja-build ccache pkg-config git
  libsqlitecpp-dev libsqlite3-dev libgit2-dev libboost1.81-dev libboost-json1.81-dev libboost-filesystem1.81-dev
  libyaml-cpp-dev libspdlog-dev libcli11-dev libssl-dev zlib1g-dev libarchive-dev libzstd-dev lxc-dev libseccomp-dev libc-ares-dev libnghttp2-dev libidn2-dev libfuse3-dev catch2
  zstd)
packages_tidy=(clang-tidy-14)
packages_fuzz=(clang-19 libclang-rt-19-dev llvm-19)
# apparmor: it is on in Debian's kernel, and LXC starts nothing before its profile is loaded.
packages_run=(lxc git sudo python3 ca-certificates apparmor e2fsprogs)
# ./check --vm: on the host; and in the machine, besides packages_run: linked libraries, a kernel, an init.
packages_vm=(qemu-system-x86 debootstrap e2fsprogs)
packages_vm_inside=(linux-image-cloud-amd64 initramfs-tools kmod udev systemd-sysv dbus iproute2 procps e2fsprogs xfsprogs
  libboost-json1.81.0 libgit2-1.5 libsqlite3-0 libssl3 libyaml-cpp0.7 liblxc1 libseccomp2 libc-ares2 libnghttp2-14 libidn2-0 libstdc++6 zlib1g libarchive13 libzstd1 zstd strace faketime openssl binutils curl
  gcc libc6-dev make nodejs npm default-jre-headless golang-go)
packages_faults=(strace util-linux e2fsprogs xfsprogs btrfs-progs faketime)  # tests/crash, and other tests that trace
packages_network_tools=(wget golang-go python3-grpcio python3-venv default-jdk-headless maven)  # only for e2e_network_tools, e2e_packages, e2e_protocols and e2e_credentials
packages_limits=(default-jre-headless golang-go mono-mcs)  # only for e2e_limits_seen, besides node and the .NET of npm
packages_engines=(docker.io crun podman busybox-static lxcfs)  # tests/engines starts its own, without their services
packages_ssh=(openssh-server openssh-client)  # for test_backends, e2e_link and others, which start their own
packages_sdk=(mypy python3-pip python3-setuptools python3-wheel python3-yaml)  # for sdk and sdk_package
packages_deb=(dpkg-dev lintian debootstrap)  # to build and test Debian packages

step_started=0
step() {  # step NAME: begins a step
  step_name=$1
  step_started=$(date +%s.%N)
  [ -t 1 ] && printf ' %-9s...' "$step_name"
  return 0
}
done_step() {  # done_step [TEXT]: ends the step and prints its time
  local seconds
  seconds=$(awk -v a="$step_started" -v b="$(date +%s.%N)" 'BEGIN { d = b - a; if (d < 10) printf "%.2f s", d; else printf "%dm%02ds", d / 60, d % 60 }')
  [ -t 1 ] && printf '\r\033[K'
  printf ' %-9s%-9s %s\n' "$step_name" "$seconds" "${1:-}"
}
fail() {  # fail MESSAGE [HINT]
  [ -t 1 ] && printf '\r\033[K'
  printf '%s: %s\n' "$(basename "$0")" "$1" >&2
  [ -n "${2:-}" ] && printf '  hint: %s\n' "$2" >&2
  exit 1
}

require_host() {
  [ "$(id -u)" = 0 ] || fail "must run as root, to create namespaces, mounts and control groups" "sudo $0"
  command -v apt-get >/dev/null || fail "needs Debian 12 or later (apt-get not found)"
  local kernel
  kernel=$(uname -r)
  if [ "$(printf '6.1\n%s\n' "$kernel" | sort -V | head -n 1)" != 6.1 ]; then
    fail "kernel $kernel is too old: 6.1 or later is needed" "Debian 12's own kernel is 6.1"
  fi
}

install_packages() {  # install_packages NAME...
  step packages
  local missing=() name
  for name in "$@"; do
    dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || missing+=("$name")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    local log
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -q -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
      { tail -n 20 "$log" >&2; rm -f "$log"; fail "apt-get could not install ${missing[*]}" "see the lines above; check the network and free disk space"; }
    rm -f "$log"
  fi
  done_step "$# needed, ${#missing[@]} new"
}

# For engines that only tests start, in directories of their own: as services they would change the host's network rules.
install_without_services() {  # install_without_services NAME...
  local policy=/usr/sbin/policy-rc.d
  if [ -e "$policy" ]; then install_packages "$@"; return; fi
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  install_packages "$@"
  rm -f "$policy"
  trap - EXIT
}

build() {  # build PRESET [TARGET...]: build/PRESET/bin
  step build
  # Without a terminal nothing else is printed for minutes.
  [ -t 1 ] || echo "           building; the log is build/$1.log"
  # Share the compiler cache with other clones of the same sources.
  export CCACHE_BASEDIR=$root CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
  local log="$root/build/$1.log" targets=("${@:2}")
  mkdir -p "$root/build"
  { cmake -S "$root" --preset "$1" && cmake --build "$root/build/$1" ${targets:+--target "${targets[@]}"}; } >"$log" 2>&1 ||
    { grep -E 'error|Error|FAILED' "$log" | head -n 30 >&2; fail "the build failed" "the whole log is $log"; }
  done_step "build/$1/bin"
}
