// Data kept with the control group of a running sandbox, written once its warden answered and read
// by the next daemon, of any release: JSON in an extended attribute. "pid", "start_ticks" and
// "directory" are permanent; without "oldest" and "newest" it comes from an earlier release, which
// spoke protocol 1.
#pragma once

#include <optional>
#include <string>

#include "backends/cgroups/cgroups.h"
#include "base/os/process.h"
#include "base/wire/protocol.h"

namespace moorage::backends {

struct SandboxLabel {
  base::ProcessIdentity init;
  std::string directory;
  base::Protocols protocols;  // of its warden and of the daemon's setup around it
  std::string release;        // of the warden; empty: older than this field
};

void write_label(SandboxCgroup& group, const SandboxLabel& label);
std::optional<SandboxLabel> read_label(const SandboxCgroup& group);  // throws corrupted

// Throws unsupported if a live sandbox has a name that begins with `prefix` and this release cannot
// work with it: it can neither adopt nor should end it. Call before changing anything in the store,
// so that a compatible release finds everything intact.
void refuse_foreign_sandboxes(const std::string& prefix);

}  // namespace moorage::backends
