// The payload of a journal's `end` frame, as the warden writes it (JSON; see warden/). A sandbox
// could tamper with it, so a missing or out-of-range field means "interrupted, damaged end
// record".
#pragma once

#include <string>

#include "state_db/tables/execs.h"

namespace moorage::workspace {

state_db::ExecOutcome parse_exec_end(const std::string& payload);

}  // namespace moorage::workspace
