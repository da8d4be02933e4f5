// The payload of a journal's `end` frame, as the warden writes it (JSON; see warden/). It comes
// from inside a sandbox's reach: anything missing or out of range is read as "interrupted, damaged
// end record".
#pragma once

#include <string>

#include "state_db/execs.h"

namespace moorage::workspace {

state_db::ExecOutcome parse_exec_end(const std::string& payload);

}  // namespace moorage::workspace
