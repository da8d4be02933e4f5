// Operations: long verbs that a restart must finish or undo, and answers kept for retries.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"

namespace moorage::state_db {

class Store;

struct OperationRow {
  base::OperationId id{};
  std::string kind{};             // "clone", "fetch", "purge"
  base::RepoId repository{};      // what it works on; 0: none
  base::WorkspaceId workspace{};  // 0: none
  OperationState state = OperationState::running;
  std::string detail{};  // JSON of the verb's own
  std::string error{};   // why it failed
  int64_t started_wall_ms = 0;
  int64_t ended_wall_ms = 0;  // 0: running
};

struct NewOperation {
  std::string kind{};
  base::RepoId repository{};
  base::WorkspaceId workspace{};
  std::string detail{};
};

class Operations {
 public:
  explicit Operations(Store& store) : store_(store) {}

  base::OperationId begin(const NewOperation& operation);
  void set_done(base::OperationId id);
  void set_failed(base::OperationId id, const std::string& error);
  OperationRow get(base::OperationId id);  // not_found
  std::vector<OperationRow> running();
  std::vector<OperationRow> list(size_t limit);  // newest first

 private:
  Store& store_;
};

}  // namespace moorage::state_db
