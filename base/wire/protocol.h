// One number for everything a daemon must agree on with sandboxes started by another release: the
// bootstrap, the calls of backends/envd_client.h, the line for the network (network_line.h) and the
// messages of egress/control.h, the journal (journal.h), a sandbox's label and
// groups (backends/cgroups/sandbox_label.h, backends/cgroups/cgroups.h) and its mounts. Every
// release of daemon and warden states its numbers; two can work together if they share one. When it
// rises and what never changes: docs/decisions/0308-versions.md.
#pragma once

#include <optional>
#include <string>

namespace moorage::base {

struct Protocols {  // all from oldest to newest
  int oldest = 1;
  int newest = 1;
};

// Of this program. Tests change only protocol.cc to build programs of another release.
extern const Protocols kProtocols;
extern const char* const kRelease;

// The highest number that both speak, if any.
std::optional<int> common_protocol(const Protocols& ours, const Protocols& theirs);
std::string to_string(const Protocols& protocols);  // "protocol 3", "protocols 1 to 3"

}  // namespace moorage::base
