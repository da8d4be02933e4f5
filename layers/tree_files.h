// Files of a workspace, accessed from the host: the only code that opens an agent's files. A path
// is resolved as in the sandbox (inside_path.h) and opened by the kernel below its root
// (base::open_in_root). Devices, sockets, FIFOs and other mounts are refused, and links are
// followed only inside. New files belong to the agent's user before they have a name: they are
// created with that user's rights, so a directory writable only by the inside root refuses them
// (permission_denied). A write is durable when it returns: temporary file in the same directory,
// fsync, rename, fsync of the directory. Refusals: not_found, already_exists, conflict (a directory
// is in the way or not empty), invalid_argument (wrong type, root of the tree, path over 4095
// bytes).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/fd.h"
#include "base/os/sparse_file.h"
#include "layers/inside_path.h"
#include "layers/upload_note.h"

namespace moorage::layers {

enum class FileType { file, directory, symlink, other };

struct FileEntry {
  std::string name;  // raw bytes
  FileType type = FileType::file;
  uint64_t size_bytes = 0;
  uint32_t mode = 0;        // permission bits
  int64_t modified_ns = 0;  // since 1970
  std::string link_target;
};

// Also bounds a file that grows meanwhile or is a hole of terabytes.
inline constexpr uint64_t kMaxHashBytes = 1ULL << 30;
std::string hash_of_file(int fd, const std::string& name);

inline constexpr size_t kMaxListingBytes = 8 << 20;  // names and link targets in one listing

struct Listing {
  std::vector<FileEntry> entries;  // sorted by name
  bool truncated = false;          // more than max_entries, or than kMaxListingBytes
};

// `roots` are mount roots (ActiveMounts), `owner` the host id of new files (uid and gid). Paths are
// absolute as inside, or relative to the first root.
class TreeFiles {
 public:
  TreeFiles(std::vector<InsideRoot> roots, uint32_t owner, UploadNotes notes = {})
      : roots_(std::move(roots)), owner_(owner), notes_(std::move(notes)) {}

  FileEntry stat(const std::string& path) const;  // for the link itself
  Listing list(const std::string& path, size_t max_entries = 100'000) const;
  Fd open_for_reading(const std::string& path, uint64_t* size_bytes) const;
  // SHA-256 of its contents, in hex; empty: it does not exist. invalid_argument: not a regular
  // file, or larger than kMaxHashBytes.
  std::optional<std::string> content_hash(const std::string& path) const;
  // Starts a durable write; write() appends bytes, commit() gives them the name. Without commit
  // nothing remains; a killed process leaves a file ".moorage-<32 hex digits>", which has a note.
  // Parents must exist. A link at the end of the path is followed as by open(2), inside, and stays
  // a link. Without a mode an existing file keeps its own, and a new one gets 0644.
  class Writer {
   public:
    Writer(UploadNote note, Fd directory, std::string name, std::string temporary, Fd file)
        : note_(std::move(note)),
          directory_(std::move(directory)),
          name_(std::move(name)),
          temporary_(std::move(temporary)),
          file_(std::move(file)),
          content_(file_.get()) {}
    Writer(Writer&&) = default;
    ~Writer();
    void set_mode(uint32_t bits);
    void write(std::string_view bytes);        // zeros become holes
    void set_modified(int64_t since_1970_ns);  // after the last write
    // Does the slow part of a commit early; the commit is then quick.
    void sync();
    void commit();

   private:
    UploadNote note_;  // destroyed last
    Fd directory_;
    std::string name_;
    std::string temporary_;
    Fd file_;
    base::SparseFile content_;
    bool synced_ = false;
  };
  Writer begin_write(const std::string& path, std::optional<uint32_t> mode) const;
  void make_directory(const std::string& path) const;  // parents too
  // Of an existing one, with the rights of the agent's user; absent: unchanged.
  struct DirectoryState {
    std::optional<uint32_t> mode{};
    std::optional<int64_t> modified_ns{};
  };
  void set_directory(const std::string& path, const DirectoryState& wanted) const;
  void make_symlink(const std::string& target, const std::string& path,
                    std::optional<int64_t> modified_ns = {}) const;
  // Never replaces a target. unsupported: from one root to another.
  void move(const std::string& from, const std::string& to) const;
  void remove(const std::string& path,
              bool recursive) const;  // the link itself, never its target

 private:
  void make_one_directory(int parent, const std::string& name, const std::string& path) const;

  std::vector<InsideRoot> roots_;
  uint32_t owner_;
  UploadNotes notes_;
};

}  // namespace moorage::layers
