#!/usr/bin/env bash
# Builds the Debian packages from this tree, in build/release/deb. Needs root, to install build dependencies. Idempotent.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source "$root/scripts/setup.sh"

require_host
install_packages "${packages_build[@]}" "${packages_deb[@]}" python3
build release deb
done_step "$(cd "$root" && echo build/release/deb/*.deb)"
printf ' %-9s%s\n' next "apt-get install ./build/release/deb/moorage_*.deb"
