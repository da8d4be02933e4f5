// A sandbox that was given up while its machine could not be reached, and whose workspace has gone
// on elsewhere since: brings here what changed there and had not arrived. From then on the sandbox
// there runs nothing more, whoever connects; what still runs is killed. Nothing is started.
#pragma once

#include <string>

#include "base/wire/link_config.h"

namespace moorage::link {

struct SalvageOptions {
  base::LinkConfig config;  // of the sandbox that was given up
  std::string into;         // packs become INTO/incoming/N.pack, as a sandbox's (sync_intake.h)
};

// {"found":bool,"packs":N}. found: the sandbox is still there. packs: how many are in INTO now; 0:
// nothing had changed. The changes are those since the last pack in the sandbox's own directory
// here; if that is gone, since the last one that the machine knows to have arrived. Harmless to
// repeat: into another directory the same changes come again, into the same one nothing more.
// Throws the reason why the machine cannot be reached; conflict: another salvage writes into INTO,
// as one does whose daemon was killed.
std::string salvage(const SalvageOptions& options);

}  // namespace moorage::link
