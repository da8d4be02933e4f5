// What a daemon and the sandboxes that another release started have to agree on has one number: the
// bootstrap, the calls of backends/envd_client.h, the journal (journal.h), the label and the groups
// of a sandbox (backends/sandbox_label.h, cgroups.h), its mounts. Every release, of the daemon and
// of the warden, says which numbers it speaks; two can work together if one number is in both. When
// it rises and what stays as it is for ever: docs/decisions/0308-versions.md.
#pragma once

#include <optional>
#include <string>

namespace moorage::base {

struct Protocols {  // all from oldest to newest
  int oldest = 1;
  int newest = 1;
};

// Of this program. protocol.cc is all that a test changes to have the programs of another release.
extern const Protocols kProtocols;
extern const char* const kRelease;

// The highest that both speak, if there is one.
std::optional<int> common_protocol(const Protocols& ours, const Protocols& theirs);
std::string to_string(const Protocols& protocols);  // "protocol 3", "protocols 1 to 3"

}  // namespace moorage::base
