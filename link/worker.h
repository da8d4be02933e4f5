// The worker of a sandbox on another machine: serves the daemon's socket (front.h), keeps the
// stream to the machine (uplink.h), starts the sandbox there (start_up.h), and brings back journals
// and changed files (journal_intake.h, sync_intake.h). It holds nothing that a new worker could not
// find again: killing it at any moment is harmless. One event loop, and a thread for the driver's
// calls. It has no capabilities: what takes rights is done by the process of packer.h.
#pragma once

#include <string>

namespace moorage::link {

struct WorkerOptions {
  std::string config;  // a file: base/wire/link_config.h
  int line = -1;       // to the keeper: keeper_line.h
};

// Ends the process: with 0 once the sandbox there was ended at the daemon's request.
[[noreturn]] void run_worker(const WorkerOptions& options);

}  // namespace moorage::link
