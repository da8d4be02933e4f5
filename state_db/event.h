// The event log. Every state change writes one event in its own transaction.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/ids.h"

namespace moorage::state_db {

// The objects of an event; unset ids are 0. A follower of a workspace also sees events of its
// sandboxes and execs.
struct Subject {
  base::RepoId repository{};
  base::WorkspaceId workspace{};
  base::SandboxId sandbox{};
  base::ExecId exec{};
  base::SnapshotId snapshot{};
};

// kind: "workspace.state" and so on for moves (`from` is empty for a new row), free for others.
struct Event {
  int64_t seq = 0;  // strictly increasing, never reused; gaps are harmless
  int64_t wall_ms = 0;
  std::string kind{};
  Subject subject{};
  std::string from{};
  std::string to{};
  std::string text{};  // the reason, cut after 4096 bytes
};

// Cuts a text to the length that an event or a row's reason stores: whole UTF-8 characters.
std::string_view event_text(std::string_view text);

}  // namespace moorage::state_db
