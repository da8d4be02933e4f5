// A store's database as it was at one moment, for a copy of the store elsewhere: taken into memory
// with SQLite's backup over a connection of its own, so that nobody who commits waits and nothing
// is written. With it comes what it refers to, which must be there wherever it is put; and what has
// to be changed in it where a store is made of it again.
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
  bool may_lack = false;          // of a deleted workspace that never had files
  std::string seal{};             // of a writable one at rest
  base::WorkspaceId workspace{};  // of a writable one
};

struct NeededHistory {  // workspaces/<ws>: journals and what lies beside them
  base::WorkspaceId workspace{};
  std::string stamp{};  // as long as it is the same, nothing was added; empty: something runs
};

struct NeededArchive {
  base::WorkspaceId workspace{};
  std::string file{};
  uint64_t bytes = 0;
  std::string sha256{};
};

struct Needs {
  std::string store_id{};
  std::string epoch{};  // another one since the store was made from a copy; "0" before
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
  DatabaseCopy(const DatabaseCopy&) = delete;
  DatabaseCopy& operator=(const DatabaseCopy&) = delete;

  std::string_view bytes() const { return bytes_; }  // as the file would be
  const Needs& needs() const { return needs_; }

 private:
  std::unique_ptr<SQLite::Database> copy_;
  std::string_view bytes_;
  Needs needs_;
};

// A file with the bytes of a copy, before it becomes the database of a store.
class CopiedDatabase {
 public:
  explicit CopiedDatabase(const std::string& path);  // corrupted: it is not sound
  ~CopiedDatabase();
  CopiedDatabase(const CopiedDatabase&) = delete;
  CopiedDatabase& operator=(const CopiedDatabase&) = delete;

  Needs needs();
  // Who stands on a layer: "auth (ws_3)", "snapshot sn_4 of auth".
  std::vector<std::string> names_on(base::LayerId layer);
  std::string name_of(base::WorkspaceId workspace);  // "auth (ws_3)"
  // Workspaces on it cannot be used: said as of others that are lost.
  void mark_lost(base::LayerId layer, const std::string& why, int64_t wall_ms);
  // What was true of the machine and of the files of before: sandboxes, seals, base trees.
  void settle();

 private:
  std::unique_ptr<SQLite::Database> database_;
};

}  // namespace moorage::state_db
