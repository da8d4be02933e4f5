// How a command ended, decided in one pure function from everything that is known:
//
//   the end record  what its warden wrote, or that no record will come (interrupted)
//   the evidence    what the kernel and the disk say about it
//   the verdict     why this daemon ended it, if it did
//   the row         whether a user cancelled it, or sent the signal that ended it
//
// Each outranks those above it, with two exceptions. A cancel cannot explain a lost command. A
// verdict that sets a state, or blames anything but a stop, outranks the cancel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "state_db/tables/execs.h"

namespace moorage::workspace {

struct Refusals {
  uint64_t forks = 0;    // refused by the process limit
  uint64_t packets = 0;  // without a route: the sandbox has no network
};

struct ExecEvidence {
  bool stopping = false;  // its sandbox was being stopped when it ended
  bool out_of_memory = false;
  bool disk_full = false;
  bool disk_quota = false;  // the kernel counts the workspace at its disk limit
  Refusals refused{};       // while the exec ran
  std::optional<std::string> refused_host{};     // by name: what, why and what allows it
  std::optional<std::string> over_disk_limit{};  // why it exceeded the limit that we watch
  std::optional<std::string> sync_error{};       // why its files could not be made durable
};

// What we record for a command that we end. Without a state, the command keeps the state it ends
// with; if it succeeds before we end it, the verdict is dropped.
struct ExecVerdict {
  std::optional<state_db::ExecState> state{};
  state_db::ExecCategory category{};
  std::string why;
};

// The payload of a journal's `end` frame, as the warden writes it (JSON; see warden/). A sandbox
// could tamper with it, so a missing or out-of-range field means "interrupted, damaged end
// record".
state_db::ExecOutcome parse_exec_end(const std::string& payload);

bool succeeded(const state_db::ExecOutcome& outcome);

// `record.category`, if set, says why the command could not start, or why it was interrupted.
// Keeps the record's times and sizes.
state_db::ExecOutcome decide_end(const state_db::ExecOutcome& record, const ExecEvidence& evidence,
                                 const std::optional<ExecVerdict>& verdict,
                                 const state_db::ExecRow& row);

}  // namespace moorage::workspace
