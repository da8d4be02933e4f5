#include "workspace/archive/store.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/os/atomic_file.h"
#include "base/os/files.h"
#include "base/size_text.h"
#include "layers/seal/seal.h"
#include "state_db/store.h"
#include "workspace/context/free_space.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

constexpr size_t kReadBytes = 1 << 20;
constexpr uint64_t kCheckBytes = 16 << 20;
constexpr const char* kTemporary = ".tmp";

constexpr layers::SealLimits kSealLimits{.time = std::chrono::minutes(10)};
// A layer being removed has its `system` renamed to this: the archive has the whole layer, and the
// remains may be incomplete. A rename needs no space on a full disk.
constexpr const char* kGoing = "/going";

void remove_file(const std::string& path) {
  if (unlink(path.c_str()) < 0 && errno != ENOENT) base::throw_errno("remove " + path);
}

// Removes the mark last.
void remove_archived_layer(Context& context, const state_db::WorkspaceRow& row) {
  const std::string layer = context.storage.layer_path(row.layer);
  if (!base::path_exists(layer + kGoing)) {
    base::check(rename((layer + "/system").c_str(), (layer + kGoing).c_str()), "mark " + layer);
    base::sync_directory(layer);
  }
  for (const char* part : {"/tree", "/home"}) base::remove_tree(layer + part);
  context.storage.remove_layer(row.layer);
}

}  // namespace

packs::ByteSource read_file_in_pieces(int fd) {
  return [fd, piece = std::make_shared<std::string>()]() -> std::string_view {
    *piece = base::read_up_to(fd, kReadBytes);
    return *piece;
  };
}

std::string ArchiveStore::path(const state_db::ArchiveRow& row) const {
  return directory() + "/" + state_db::ArchiveTable(context_.store).file_name(row);
}

base::Fd ArchiveStore::spool(const std::string& directory) {
  // NFS lacks O_TMPFILE, so create a name and unlink it at once.
  std::string path = directory + "/spool-XXXXXX";
  base::Fd fd(mkostemp(path.data(), O_CLOEXEC));
  base::check(fd.get(), "create a temporary file in " + directory);
  remove_file(path);
  return fd;
}

ReadOptions ArchiveStore::read_options(const Options& options, const std::string& directory) {
  return {.limits = {}, .disk_first_id = options.disk_first_id, .unnamed_file = [directory] {
            return spool(directory);
          }};
}

// The empty directory below a missing mount does not contain this file.
std::string ArchiveStore::mark() const {
  return directory() + "/.moorage-" + context_.store.store_id();
}

void ArchiveStore::require_same() const {
  if (base::path_exists(mark())) return;
  bool any = false;
  for (const auto& row : state_db::ArchiveTable(context_.store).list()) {
    if (!row.whole) continue;
    if (is_there(row)) return;
    any = true;
  }
  if (!any) return;
  throw Error(Code::unavailable,
              "archive.directory " + directory() + " exists but holds no archive of this store",
              "mount it; if you meant to change the directory: touch " + mark());
}

void ArchiveStore::require_writable() const {
  try {
    // Create only our own default; any other directory may be a mount point.
    if (directory() == context_.options.store + "/archive") base::make_directories(directory());
    spool(directory());
    require_same();
    if (!base::path_exists(mark())) base::write_file_durable(mark(), "");
  } catch (const Error& error) {
    if (error.code() == Code::unavailable) throw;
    throw Error(error.code() == Code::resource_exhausted ? error.code() : Code::unavailable,
                "cannot write to archive.directory: " + error.message(),
                "check that " + directory() + " exists, is mounted, writable and not full");
  }
}

void ArchiveStore::require_room(const std::string& what, uint64_t bytes) const {
  DiskRoom room = room_of(base::file_system_space(directory()), context_.options);
  const std::string text = room.text();
  const bool fits = bytes < room.space.free_bytes;
  room.space.free_bytes -= std::min(bytes, room.space.free_bytes);
  if (fits && room.level() != RoomLevel::short_of) return;
  throw Error(Code::resource_exhausted,
              what + ": its archive needs " + base::size_text(bytes) + " more space (" + text + ")",
              "free space (see moorage gc --explain), or move archive.directory to another disk");
}

packs::ArchiveFacts ArchiveStore::write(const state_db::ArchiveRow& row,
                                        const ArchiveContents& contents,
                                        const std::function<void(const char* step)>& made) const {
  const std::string place = path(row);
  if (base::path_exists(place)) {
    throw Error(Code::conflict, place + " exists, but the database does not list it",
                "a newer state.db may list it; examine the file, then move it away");
  }
  remove_file(place + kTemporary);
  base::AtomicFile file(place, {.suffix = kTemporary, .elsewhere = true});
  const packs::WriterOptions options{.level = context_.options.archive_level,
                                     .threads = context_.options.archive_threads,
                                     .unnamed_file = [this] { return spool(directory()); }};
  uint64_t since_check = 0;
  const packs::ArchiveFacts written = write_archive(contents, options, [&](std::string_view bytes) {
    if ((since_check += bytes.size()) >= kCheckBytes) {
      require_room("cannot finish the archive", since_check);
      since_check = 0;
    }
    file.write(bytes);
  });
  file.sync();
  made("written");
  verify(file.temporary(), written);
  file.commit();
  base::sync_directory(directory());
  made("named");
  return written;
}

// Drops the cached pages first so that it reads from the disk; that works because they are clean.
packs::ArchiveFacts ArchiveStore::read_from_disk(int fd, const std::string& spool_directory) const {
  posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ArchiveVisitor nothing;
  return read_archive(read_file_in_pieces(fd), read_options(context_.options, spool_directory),
                      nothing);
}

void ArchiveStore::verify(const std::string& path, const packs::ArchiveFacts& written) const {
  const auto read = read_from_disk(base::open_file(path, O_RDONLY).get(), directory());
  if (read.digest != written.digest || read.stream.sha256 != written.stream.sha256 ||
      read.entries != written.entries) {
    throw Error(Code::corrupted, path + " differs from what was written",
                "the disk or the network under archive.directory corrupts data");
  }
}

bool ArchiveStore::is_elsewhere() const {
  struct stat store;
  base::check(stat(context_.options.store.c_str(), &store), "stat " + context_.options.store);
  struct stat archive;
  if (stat(directory().c_str(), &archive) == 0) return archive.st_dev != store.st_dev;
  return directory() != context_.options.store + "/archive";
}

bool ArchiveStore::is_there(const state_db::ArchiveRow& row) const {
  struct stat status;
  return lstat(path(row).c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         static_cast<uint64_t>(status.st_size) == row.bytes;
}

void ArchiveStore::check(const state_db::ArchiveRow& row) const {
  if (read_from_disk(open(row).get(), context_.options.store).stream.sha256 != row.sha256)
    throw Error(Code::corrupted, "the file differs from what was written");
}

std::vector<std::string> ArchiveStore::unknown() const {
  std::vector<std::string> found;
  state_db::ArchiveTable table(context_.store);
  // Before the rows: those come first.
  const auto names = base::list_directory_if_exists(directory());
  std::set<std::string> known;
  for (const auto& row : table.list()) known.insert(table.file_name(row));
  for (const auto& name : names) {
    const bool ours = name.starts_with(table.name_prefix()) && !name.ends_with(kTemporary);
    if (ours && !known.contains(name)) found.push_back(directory() + "/" + name);
  }
  return found;
}

base::Fd ArchiveStore::open(const state_db::ArchiveRow& row) const {
  try {
    return base::open_file(path(row), O_RDONLY | O_NOFOLLOW);
  } catch (const Error& error) {
    throw Error(Code::unavailable, "cannot open its archive: " + error.message(),
                "check that archive.directory is mounted and still the one that was used");
  }
}

void ArchiveStore::remove(const state_db::ArchiveRow& row) const {
  if (!base::path_exists(directory())) {
    throw Error(Code::unavailable, "archive.directory " + directory() + " does not exist",
                "mount it, so that an archive in it can be removed");
  }
  if (!base::path_exists(path(row))) require_same();
  remove_file(path(row));
  remove_file(path(row) + kTemporary);
  base::sync_directory(directory());
}

void ArchiveStore::remove_temporary() const {
  const std::string prefix = state_db::ArchiveTable(context_.store).name_prefix();
  for (const std::string& name : base::list_directory_if_exists(directory())) {
    if (!name.starts_with(prefix) || !name.ends_with(kTemporary)) continue;
    base::log(base::LogLevel::warning, "archive.unfinished", {{"file", name}});
    remove_file(directory() + "/" + name);
  }
}

void remove_archive(Context& context, base::WorkspaceId id) {
  state_db::ArchiveTable table(context.store);
  const auto archive = table.find(id);
  if (!archive) return;
  ArchiveStore(context).remove(*archive);
  table.forget(id);
}

bool is_as_archived(const Context& context, const state_db::WorkspaceRow& row,
                    const state_db::ArchiveRow& archive) {
  const std::string layer = context.storage.layer_path(row.layer);
  if (base::path_exists(layer + kGoing)) return true;
  try {
    return take_seal(layer, kSealLimits).hash == archive.seal;
  } catch (const Error& error) {  // a part is missing, or it is being written
    base::log(base::LogLevel::warning, "archive.not_compared",
              {{"ws", row.id}, {"error", error.message()}});
    return false;
  }
}

void settle_archive(Context& context, const state_db::WorkspaceRow& row) {
  state_db::ArchiveTable table(context.store);
  const auto archive = table.find(row.id);
  const auto is_both = [&] {
    return archive && row.layer && base::path_exists(context.storage.layer_path(row.layer)) &&
           ArchiveStore(context).is_there(*archive);
  };
  switch (row.state) {
    case WorkspaceState::archiving:
      try {
        if (archive) ArchiveStore(context).remove(*archive);
      } catch (const Error& error) {
        // The hot workspace is complete, whatever happens to a file that nobody needs.
        base::log(base::LogLevel::warning, "archive.left_behind",
                  {{"ws", row.id}, {"error", error.message()}});
      }
      table.undo(row.id, "archiving was interrupted; nothing changed");
      return;
    case WorkspaceState::unarchiving:
      if (is_both()) context.storage.remove_layer(row.layer);
      table.undo_restore(row.id, "unarchiving was interrupted; it is still in its archive");
      return;
    case WorkspaceState::archived:
      if (is_both() && is_as_archived(context, row, *archive)) remove_archived_layer(context, row);
      return;
    case WorkspaceState::ready:
      if (archive && !archive->whole) remove_archive(context, row.id);
      return;
    case WorkspaceState::creating:
    case WorkspaceState::deleting:
    case WorkspaceState::deleted:
    case WorkspaceState::failed:
      return;
  }
}

}  // namespace moorage::workspace
