// What is kept with the control group of a running sandbox, written once its warden answered and
// read by whichever daemon comes next, of this release or another: JSON, in an extended attribute.
// "pid", "start_ticks" and "directory" are there for ever; without "oldest" and "newest" it was
// written by a release before them, which spoke protocol 1.
#pragma once

#include <optional>
#include <string>

#include "backends/cgroups.h"
#include "base/process.h"
#include "base/protocol.h"

namespace moorage::backends {

struct SandboxLabel {
  base::ProcessIdentity init;
  std::string directory;
  base::Protocols protocols;  // of its warden and of what the daemon made around it
  std::string release;        // of the warden; empty: older than this field
};

void write_label(SandboxCgroup& group, const SandboxLabel& label);
std::optional<SandboxLabel> read_label(const SandboxCgroup& group);  // throws corrupted

// Throws unsupported if a sandbox lives whose name begins with `prefix` and with which this release
// cannot work: one that it can neither adopt nor should end. To be asked before anything of the
// store is changed, so that the release which can finds all as it left it.
void refuse_foreign_sandboxes(const std::string& prefix);

}  // namespace moorage::backends
