// The directory of archives, `archive.directory`: it may be another file system, and may be
// unmounted. A file appears there by rename, complete and synced; unfinished files end in ".tmp".
// Names carry the store's id, because several stores may share a directory.
// workspace/verbs/archives.h, workspace/recovery/reconcile.h and purge decide when an archive is
// removed; this file does not.
#pragma once

#include <string>
#include <vector>

#include "state_db/tables/archives.h"
#include "state_db/tables/workspaces.h"
#include "workspace/archive/file.h"
#include "workspace/context/context.h"

namespace moorage::workspace {

class ArchiveStore {
 public:
  explicit ArchiveStore(Context& context) : context_(context) {}

  std::string path(const state_db::ArchiveRow& row) const;
  // Throws, with a hint, unless the directory is writable and still the same one.
  void require_writable() const;
  // Throws resource_exhausted, starting with `what`, if a file of that size would not fit, or would
  // push the disk below the level where the disk guard ends commands.
  void require_room(const std::string& what, uint64_t bytes) const;
  // An unnamed file in `directory`, for data that must be complete before it is written.
  static base::Fd spool(const std::string& directory);
  // For an archive of this store; names of parts that are only checked may spool to `directory`.
  static ReadOptions read_options(const Options& options, const std::string& directory);
  // Writes, syncs, reads all of it back from the disk and compares, then renames it into place.
  // Calls `made` after writing and after the rename.
  packs::ArchiveFacts write(const state_db::ArchiveRow& row, const ArchiveContents& contents,
                            const std::function<void(const char* step)>& made) const;
  // On another file system than the store, or on one that is not mounted now.
  bool is_elsewhere() const;
  bool is_there(const state_db::ArchiveRow& row) const;  // compares name and size only
  // Reads a finished archive completely; corrupted: it differs from what was written.
  void check(const state_db::ArchiveRow& row) const;
  std::vector<std::string> unknown() const;  // files of this store without a row
  base::Fd open(const state_db::ArchiveRow& row) const;
  // Removes file and temporary file. A missing file is fine; a missing or unmounted directory
  // fails.
  void remove(const state_db::ArchiveRow& row) const;
  void remove_temporary() const;  // at start: all of this store's

 private:
  const std::string& directory() const { return context_.options.archive_directory; }
  std::string mark() const;
  void require_same() const;
  packs::ArchiveFacts read_from_disk(int fd, const std::string& spool_directory) const;
  void verify(const std::string& path, const packs::ArchiveFacts& written) const;

  Context& context_;
};

// Reads a file from its current position to its end.
packs::ByteSource read_file_in_pieces(int fd);

// Whether the layer on disk still equals its archive. A restored state.db may say `archived` for a
// workspace that has since returned and changed, while its archive still exists.
bool is_as_archived(const Context& context, const state_db::WorkspaceRow& row,
                    const state_db::ArchiveRow& archive);

// Cleans up after a crash or a verb that failed midway: removes an unfinished archive, undoes an
// unfinished return, and, if both a hot copy and an archive exist, removes the one that the row
// does not name. A hot copy is never removed if its archive is missing or differs from it. Caller
// holds the workspace's lock, or runs before anything else.
void settle_archive(Context& context, const state_db::WorkspaceRow& row);

// Removes the archive's file and its row. Used by a purge.
void remove_archive(Context& context, base::WorkspaceId id);

}  // namespace moorage::workspace
