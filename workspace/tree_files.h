// Files of a workspace as seen from the host: the only code that opens what an agent wrote. A path
// is found as the sandbox would (inside_path.h) and opened by the kernel below the root that holds
// it (base::open_in_root); devices, sockets and FIFOs are refused, so is whatever lies on another
// mount, and links are followed only inside. New files
// belong to the agent's user before they have a name: they are made with that user's rights, so a
// directory that only the inside root may write refuses them (permission_denied). A write is
// durable when it returns: temporary file in the same directory, fsync, rename, fsync of the
// directory. Refusals: not_found, already_exists, conflict (a directory is in the way, or not
// empty), invalid_argument (wrong type, root of the tree, path over 4095 bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "workspace/inside_path.h"
#include "workspace/upload_note.h"

namespace moorage::workspace {

enum class FileType { file, directory, symlink, other };

struct FileEntry {
  std::string name;  // raw bytes
  FileType type = FileType::file;
  uint64_t size_bytes = 0;
  uint32_t mode = 0;  // permission bits
  int64_t modified_ms = 0;
  std::string link_target;
};

// Of a file that grows under the eyes, or is a hole of terabytes, too.
inline constexpr uint64_t kMaxHashBytes = 1ULL << 30;
std::string hash_of_file(int fd, const std::string& name);

inline constexpr size_t kMaxListingBytes = 8 << 20;  // of names and link targets in one listing

struct Listing {
  std::vector<FileEntry> entries;  // sorted by name
  bool truncated = false;          // more than max_entries, or than kMaxListingBytes
};

// `roots` are mount roots (ActiveMounts), `owner` the host id that new files get (uid and gid).
// Paths are absolute as inside, or relative to the first root.
class TreeFiles {
 public:
  TreeFiles(std::vector<InsideRoot> roots, uint32_t owner, UploadNotes notes = {})
      : roots_(std::move(roots)), owner_(owner), notes_(std::move(notes)) {}

  FileEntry stat(const std::string& path) const;  // of the link itself
  Listing list(const std::string& path, size_t max_entries = 100'000) const;
  base::Fd open_for_reading(const std::string& path, uint64_t* size_bytes) const;
  // SHA-256 of what reading it gives, as hex; nothing: it is not there. invalid_argument: it is no
  // file, or larger than kMaxHashBytes.
  std::optional<std::string> content_hash(const std::string& path) const;
  // Starts a durable write; bytes are appended with write(), commit() gives them the name. Without
  // commit nothing is left; what a process that is killed in between leaves, a file ".moorage-<32
  // hex digits>", has a note. Parents must exist. A link at the end of the path is followed as
  // open(2) would, inside, and stays a link. Mode 0 keeps an existing file's permission bits, or
  // gives a new one 0644.
  class Writer {
   public:
    Writer(UploadNote note, base::Fd directory, std::string name, std::string temporary,
           base::Fd file);
    Writer(Writer&&) = default;
    ~Writer();
    void set_mode(uint32_t bits);
    void write(std::string_view bytes);
    // What takes long of a commit, before it: then the name is given at once.
    void sync();
    void commit();

   private:
    UploadNote note_;  // goes last
    base::Fd directory_;
    std::string name_;
    std::string temporary_;
    base::Fd file_;
    bool synced_ = false;
  };
  Writer begin_write(const std::string& path, uint32_t mode) const;
  void make_directory(const std::string& path) const;  // parents too
  void make_symlink(const std::string& target, const std::string& path) const;
  // Replaces nothing. unsupported: from one root to another.
  void move(const std::string& from, const std::string& to) const;
  void remove(const std::string& path,
              bool recursive) const;  // the link itself, never what it names

 private:
  void make_one_directory(int parent, const std::string& name, const std::string& path) const;

  std::vector<InsideRoot> roots_;
  uint32_t owner_;
  UploadNotes notes_;
};

}  // namespace moorage::workspace
