// A consistent copy of a store's database for the replica, read into memory by SQLite's backup over
// a connection of its own, so that committers never wait and nothing is written. It also lists the
// files that the database refers to, which the replica must contain, and makes the changes needed
// when a store is restored from it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace SQLite {
class Database;
}

namespace moorage::state_db {

struct NeededLayer {
  base::LayerId layer{};
  bool frozen = false;
  bool may_lack = false;          // belongs to a deleted workspace without files
  std::string seal{};             // of an idle writable layer
  base::WorkspaceId workspace{};  // of a writable layer
};

struct NeededHistory {  // workspaces/<ws>: journals and related files
  base::WorkspaceId workspace{};
  std::string stamp{};  // unchanged while nothing was added; empty: something is running
};

struct NeededArchive {
  base::WorkspaceId workspace{};
  std::string file{};
  uint64_t bytes = 0;
  std::string sha256{};
};

struct Needs {
  std::string store_id{};
  std::string epoch{};  // changes when a store is restored from a copy; "0" before
  std::vector<NeededLayer> layers{};
  std::vector<NeededHistory> histories{};
  std::vector<base::RepoId> repositories{};
  std::vector<NeededArchive> archives{};
};

class DatabaseCopy {
 public:
  // Throws as Connection does; resource_exhausted beyond 1 GiB.
  explicit DatabaseCopy(const std::string& store_directory);
  ~DatabaseCopy();
  DatabaseCopy(DatabaseCopy&&) = delete;

  std::string_view bytes() const { return bytes_; }  // the contents of the database file
  const Needs& needs() const { return needs_; }

 private:
  std::unique_ptr<SQLite::Database> copy_;
  std::string_view bytes_;
  Needs needs_;
};

// A file with the bytes of a copy, before it becomes a store's database.
class CopiedDatabase {
 public:
  explicit CopiedDatabase(const std::string& path);  // corrupted: failed the integrity check
  ~CopiedDatabase();
  CopiedDatabase(CopiedDatabase&&) = delete;

  Needs needs();
  // Users of a layer: "auth (ws_3)", "snapshot sn_4 of auth".
  std::vector<std::string> names_on(base::LayerId layer);
  std::string name_of(base::WorkspaceId workspace);  // "auth (ws_3)"
  // Marks the workspaces on this layer as lost, with the reason.
  void mark_lost(base::LayerId layer, const std::string& why, int64_t wall_ms);
  // Resets facts about the old machine and its files: sandboxes, seals, base trees.
  void settle();

 private:
  std::unique_ptr<SQLite::Database> database_;
};

}  // namespace moorage::state_db
