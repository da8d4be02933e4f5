// What happened, for those who follow. Every move of a state writes one in its own transaction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace moorage::state_db {

// What an event is about; unset ids are 0. A follower of a workspace sees its sandboxes and execs
// too.
struct Subject {
  base::RepoId repository{};
  base::WorkspaceId workspace{};
  base::SandboxId sandbox{};
  base::ExecId exec{};
  base::SnapshotId snapshot{};
};

// kind: "workspace.state" and so on for moves (from is empty for a new row), free for others.
struct Event {
  int64_t seq = 0;  // strictly growing, never reused; a gap has no meaning
  int64_t wall_ms = 0;
  std::string kind{};
  Subject subject{};
  std::string from{};
  std::string to{};
  std::string text{};  // the reason, cut after 4096 bytes
};

// As much of a text as an event, and the reason in a row, keep: whole UTF-8 characters.
std::string_view event_text(std::string_view text);

}  // namespace moorage::state_db
