// Archives of workspaces. A row exists from the intent to write the file until the file is removed.
// The file name is derived from the row, so every file has a row. `whole` means that the file holds
// the workspace, perhaps as its only copy; without it the file is incomplete or about to be
// removed. This table also moves workspaces into an archive and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/lifecycle.h"

namespace moorage::state_db {

class Store;

struct ArchiveRow {
  int64_t number = 0;
  base::WorkspaceId workspace{};
  bool whole = false;
  uint64_t bytes = 0;    // size of the file
  std::string sha256{};  // of the file, hex
  int64_t wall_ms = 0;   // when the file was complete; 0: never
  std::string seal{};    // of the writable layer in the file
};

struct ArchiveFile {
  uint64_t bytes = 0;
  std::string sha256{};
  std::string seal{};
};

// "moorage-0a1b2c3d-ws_3.7.tar.zst"
std::string archive_file_name(const std::string& store_id, base::WorkspaceId workspace,
                              int64_t number);
// The key suffix of a verb that moves a workspace, until the outcome is known. Undoing the move
// forgets it, and a retry starts over.
std::string move_under_way(base::WorkspaceId workspace);
// The number in the name of an archive of that workspace; empty: not such a file name.
std::optional<int64_t> archive_number(const std::string& file_name, const std::string& store_id,
                                      base::WorkspaceId workspace);

class ArchiveTable {
 public:
  explicit ArchiveTable(Store& store) : store_(store) {}

  ArchiveRow begin(base::WorkspaceId id);  // ready -> archiving; conflict in any other state
  // archiving -> archived; `layers` lists every layer in the file.
  void finish(base::WorkspaceId id, const ArchiveFile& file,
              const std::vector<base::LayerId>& layers);
  void undo(base::WorkspaceId id, const std::string& reason);          // archiving -> ready
  void begin_restore(base::WorkspaceId id);                            // archived -> unarchiving
  void finish_restore(base::WorkspaceId id);                           // unarchiving -> ready
  void undo_restore(base::WorkspaceId id, const std::string& reason);  // unarchiving -> archived
  void forget(base::WorkspaceId id);                                   // its file was removed

  std::optional<ArchiveRow> find(base::WorkspaceId id);
  std::vector<ArchiveRow> list();  // by number
  // With the fields of its workspace that locate the layers.
  struct Place {
    base::WorkspaceId workspace{};
    bool whole = false;
    WorkspaceState state = WorkspaceState::archived;
    base::LayerId layer{};
  };
  std::vector<Place> places();
  std::string file_name(const ArchiveRow& row) const;
  std::string name_prefix() const;  // of every file of this store

 private:
  Store& store_;
};

}  // namespace moorage::state_db
