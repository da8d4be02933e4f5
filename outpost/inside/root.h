// The root file system of a sandbox on this machine, in a mount namespace of its own: nothing of it
// is seen outside, and all of it vanishes with the last process inside.
//
//   /usr, /bin, /lib...       the machine's, read-only, without setuid programs and devices
//   /etc                      etc.h
//   /workspace, /home/user    overlays (sandbox.h), the only durable places
//   /tmp /var/tmp /run /root  in memory
//   /dev                      null, zero, full, random, urandom, tty, terminals
//   /.moorage/objects         git objects that were sent, read-only
//   /.moorage/certificates    authorities (base/wire/trust.h), and in place of the machine's
//   bundles
//
// mount(2) and not the newer calls: those machines may have old kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/processors.h"
#include "outpost/inside/limits.h"

namespace moorage::outpost {

// The user who mounts the overlays decides which marks they use (layers/overlay_lookup.h). none: a
// sandbox without namespaces (plain.h).
enum class OverlayKind { root, user, none };
const char* overlay_name(OverlayKind overlay);  // "root", "user", "none"
OverlayKind overlay_of(std::string_view name);

inline constexpr uint32_t kInsideUser = 1000;
// All sandboxes of root's share one range, beyond those of any system service and below 2^31.
inline constexpr uint32_t kFirstId = 2'013'265'920;
inline constexpr uint32_t kIds = 65536;

struct RootPlan {
  OverlayKind overlay = OverlayKind::root;
  std::string sandbox;       // its directory
  std::string tree;          // lower directory of /workspace
  std::string objects;       // empty: none
  std::string certificates;  // the same
  Limits limits = {};
  base::Processors processors = {};  // empty: all
};

// The directory, in a sandbox's, where the root is mounted.
std::string root_place(const std::string& sandbox);

// In the caller's mount namespace, which must be private. For OverlayKind::root the caller is the
// machine's root; for user it is in a user namespace of its own, as inside user 1000.
void build_root(const RootPlan& plan);
// The rest, by process 1 in its namespaces: makes it the root, mounts /proc and terminals.
// `terminal_group`: tty's exists in the id map.
void enter_root(bool terminal_group);

}  // namespace moorage::outpost
