// The directory of archives, `archive.directory`: perhaps another file system, perhaps away for the
// moment. A file appears in it by rename, whole and synced; what is being made ends in ".tmp". The
// names carry the store's id, as several stores may share a directory. Nothing here decides when an
// archive may go: archives.h, reconcile.h and a purge do.
#pragma once

#include <string>
#include <vector>

#include "state_db/archives.h"
#include "state_db/workspaces.h"
#include "workspace/archive_file.h"
#include "workspace/context.h"

namespace moorage::workspace {

class ArchiveStore {
 public:
  explicit ArchiveStore(Context& context) : context_(context) {}

  std::string path(const state_db::ArchiveRow& row) const;
  // Throws, with what to do, unless files can be made there now, and it is the directory of before.
  void require_writable() const;
  // Throws resource_exhausted, `what` first, where a file of so many bytes would take what the disk
  // guard ends commands for, or all that there is.
  void require_room(const std::string& what, uint64_t bytes) const;
  // A file without a name in `directory`, for what must be known before it can be written.
  static base::Fd spool(const std::string& directory);
  // Of an archive of this store; names of what is only checked may be spooled to `directory`.
  static ReadOptions read_options(const Options& options, const std::string& directory);
  // Writes, syncs, reads all of it back from the disk and compares, then gives it its name.
  // `made` is called when it is written and when it has its name.
  ArchiveFacts write(const state_db::ArchiveRow& row, const ArchiveContents& contents,
                     const std::function<void(const char* step)>& made) const;
  // On another file system than the store, or on one that is not mounted now.
  bool is_elsewhere() const;
  bool is_there(const state_db::ArchiveRow& row) const;  // by its name and size
  // Reads all of a whole one; corrupted: it is not what was written.
  void check(const state_db::ArchiveRow& row) const;
  std::vector<std::string> unknown() const;  // files of this store without a row
  base::Fd open(const state_db::ArchiveRow& row) const;
  // File and temporary file; missing is fine, a directory that is missing or not mounted is not.
  void remove(const state_db::ArchiveRow& row) const;
  void remove_temporary() const;  // at start: of this store, all of them

 private:
  const std::string& directory() const { return context_.options.archive_directory; }
  std::string mark() const;
  void require_same() const;
  void verify(const std::string& path, const ArchiveFacts& written) const;

  Context& context_;
};

// Reads a file from its present position to its end.
ByteSource read_file_in_pieces(int fd);

// Whether the layer that is still there is what went into the archive, and not work of later: a
// state.db that was restored may say `archived` of one that has come back since, and its archive
// may be there, too.
bool is_as_archived(const Context& context, const state_db::WorkspaceRow& row,
                    const state_db::ArchiveRow& archive);

// What a crash, or a verb that failed in the middle, left of an archive: an unfinished one is
// removed, an unfinished return is undone, and of a hot copy and an archive the one goes that the
// row does not speak for. No hot copy goes while the archive is not there, nor one that is not as
// it was archived. Caller holds the workspace's lock, or nobody else is there yet.
void settle_archive(Context& context, const state_db::WorkspaceRow& row);

// Of what an archive has: the file, and the name it goes by. Used by a purge.
void remove_archive(Context& context, base::WorkspaceId id);

}  // namespace moorage::workspace
