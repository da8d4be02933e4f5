#include "layers/seal/seal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "base/digest.h"
#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/xattr.h"
#include "layers/seal/seal_list.h"
#include "layers/sorted_names.h"

namespace moorage::layers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kNodeBytes = 64;           // of a set node
constexpr uint64_t kLeastPiece = 32 << 10;  // of one directory's names
constexpr uint64_t kMostPiece = 4 << 20;
// Digests are slow on small pieces, so gather them.
constexpr size_t kDigestPiece = 64 << 10;

// The memory of all seals being taken in this process. Above this, another seal uses smaller
// pieces: it gets slower instead of failing.
constexpr uint64_t kAllSealsBytes = 24 << 20;
std::atomic<uint64_t> all_seals_bytes{0};

uint64_t minus(uint64_t from, uint64_t what) { return from - std::min(from, what); }

// FNV-1a: short, only to find which paths differ; the seal itself is SHA-256.
uint64_t short_hash(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

std::string hex(uint64_t value) {
  char text[17];
  snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(value));
  return text;
}

template <typename Number>
void append(std::string& text, Number value) {
  char digits[24];
  text.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

void append(std::string& text, const timespec& time) {
  append(text, time.tv_sec);
  text += '.';
  append(text, time.tv_nsec);
}

class Sealer {
 public:
  Sealer(const std::string& layer, const SealLimits& limits, const SealListed& listed)
      : layer_(layer), limits_(limits), listed_(listed), until_(Clock::now() + limits.time) {}
  ~Sealer() { all_seals_bytes -= memory_; }
  Sealer(Sealer&&) = delete;

  Seal seal() {
    add_bytes(stat_of(layer_));
    for (const std::string_view name : kSealedParts) {
      const std::string part(name);
      const std::string place = layer_ + "/" + part;
      add_bytes(stat_of(place));
      hashed_ = false;
      walk(place + "/work", "");
      hashed_ = true;
      add(part);
      add("\n");
      walk(place + "/upper", part);
    }
    hash_.add(pending_);
    seal_.hash = base::to_hex(hash_.raw());
    return std::move(seal_);
  }

 private:
  using Inode = std::pair<dev_t, ino_t>;
  struct Level {
    Inode inode;
    SortedNames names;
    size_t path_bytes;  // length of path_ without this directory
  };

  static struct stat stat_of(const std::string& path) {
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) base::throw_errno("inspect " + path);
    if (!S_ISDIR(status.st_mode)) throw Error(Code::not_found, path + " is not a directory");
    return status;
  }

  [[noreturn]] void throw_changing() const {
    throw Error(Code::conflict, layer_ + " changed while it was being read");
  }

  void walk(const std::string& root, const std::string& name) {
    const struct stat status = stat_of(root);
    add_bytes(status);
    here_ = base::open_directory(root);
    path_ = name;
    record("", describe_directory(here_.get(), status));
    enter(path_.size());
    while (!levels_.empty()) {
      if (Clock::now() > until_) {
        throw Error(Code::resource_exhausted, layer_ + " has too many files to read within " +
                                                  std::to_string(limits_.time.count()) + " ms");
      }
      if (const auto next = next_name()) {
        visit(*next);
      } else {
        leave();
      }
    }
  }

  void visit(const std::string& name) {
    struct stat status {};
    if (fstatat(here_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) throw_changing();
    add_bytes(status);
    if (!S_ISDIR(status.st_mode)) return record(name, describe(name, status));
    Fd below = base::try_open_directory_beneath(here_.get(), name);
    // Somebody else mounted something in the layer; the files under it cannot be read.
    if (!below && errno == EXDEV) return record(name, "a mount");
    if (!below) throw_changing();
    here_ = std::move(below);
    record(name, describe_directory(here_.get(), status));
    const size_t before = path_.size();
    path_ += "/" + name;
    enter(before);
  }

  void enter(size_t path_before) {
    struct stat status {};
    base::check(fstat(here_.get(), &status), "stat " + layer_);
    levels_.push_back({{status.st_dev, status.st_ino}, {}, path_before});
    use(sizeof(Level) + levels_.back().names.bytes());
  }

  // The next name of the directory here_.
  std::optional<std::string> next_name() {
    SortedNames& names = levels_.back().names;
    const uint64_t before = names.bytes();
    const uint64_t left =
        std::min(minus(limits_.max_memory_bytes, memory_), minus(kAllSealsBytes, all_seals_bytes));
    auto name = names.next(here_.get(), std::clamp(left / 2, kLeastPiece, kMostPiece));
    give(before);
    use(names.bytes());
    return name;
  }

  void give(uint64_t bytes) {
    memory_ -= bytes;
    all_seals_bytes -= bytes;
  }

  void use(uint64_t bytes) {
    memory_ += bytes;
    all_seals_bytes += bytes;
    if (memory_ > limits_.max_memory_bytes)
      throw Error(Code::resource_exhausted, layer_ + " has too many files to read");
  }

  void leave() {
    if (hashed_) add(std::string_view("\0", 1));  // names are never empty: marks the end
    path_.resize(levels_.back().path_bytes);
    give(sizeof(Level) + levels_.back().names.bytes());
    levels_.pop_back();
    if (levels_.empty()) return;
    const Inode& above = levels_.back().inode;
    Fd up = base::try_open_parent(here_.get(), above.first, above.second);
    if (!up) throw_changing();
    here_ = std::move(up);
  }

  // Returns about_.
  const std::string& describe(const std::string& name, const struct stat& status) {
    describe_common(status);
    if (S_ISLNK(status.st_mode)) {
      char target[PATH_MAX];
      const ssize_t size = readlinkat(here_.get(), name.c_str(), target, sizeof target);
      if (size < 0) throw_changing();
      return about_.append(target, static_cast<size_t>(size));
    }
    if (S_ISBLK(status.st_mode) || S_ISCHR(status.st_mode)) {
      append(about_, major(status.st_rdev));
      about_ += ':';
      append(about_, minor(status.st_rdev));
    }
    about_ += ' ';
    append(about_, status.st_size);
    about_ += ' ';
    append(about_, status.st_mtim);
    about_ += ' ';
    append(about_, status.st_ctim);
    return about_;
  }

  const std::string& describe_directory(int fd, const struct stat& status) {
    describe_common(status);
    for (const char* mark : {"trusted.overlay.opaque", "trusted.overlay.redirect"}) {
      about_ += base::read_attribute(fd, mark).value_or("");
      about_ += '\n';
    }
    return about_;
  }

  void describe_common(const struct stat& status) {
    about_.clear();
    for (const uint64_t value :
         {uint64_t{status.st_mode}, uint64_t{status.st_uid}, uint64_t{status.st_gid}}) {
      append(about_, value);
      about_ += ' ';
    }
  }

  void add(std::string_view text) {
    pending_ += text;
    if (pending_.size() < kDigestPiece) return;
    hash_.add(pending_);
    pending_.clear();
  }

  void record(std::string_view name, std::string_view about) {
    if (!hashed_) return;
    seal_.paths += 1;
    add(name);
    add(std::string_view("\0", 1));
    append(pending_, about.size());
    add(":");
    add(about);
    if (!listed_) return;
    const size_t bytes = path_.size() + 1 + name.size() + kSealListMarkBytes;
    if (bytes > kMaxSealListEntryBytes || listed_bytes_ + bytes > limits_.max_list_bytes) return;
    listed_bytes_ += bytes;
    // path_ is the entry's directory; a root is listed as path_ itself.
    listed_(name.empty() ? path_ : path_ + "/" + std::string(name), hex(short_hash(about)));
  }

  void add_bytes(const struct stat& status) {
    if (!S_ISDIR(status.st_mode) && status.st_nlink > 1) {
      const Inode inode{status.st_dev, status.st_ino};
      if (linked_.contains(inode)) return;
      // Beyond this number, count every name: overestimating the disk use is safer.
      if (linked_.size() < limits_.max_memory_bytes / 4 / kNodeBytes) {
        linked_.insert(inode);
        use(kNodeBytes);
      }
    }
    seal_.bytes += static_cast<uint64_t>(status.st_blocks) * 512;
    seal_.files += 1;
  }

  const std::string& layer_;
  const SealLimits& limits_;
  const SealListed& listed_;
  const Clock::time_point until_;
  Seal seal_;
  base::Sha256 hash_;
  std::string pending_;  // not yet in hash_
  std::string about_;    // the last description
  bool hashed_ = false;
  Fd here_;
  std::string path_;  // of here_, within the layer
  std::vector<Level> levels_;
  std::set<Inode> linked_;
  uint64_t listed_bytes_ = 0;
  uint64_t memory_ = 0;
};

}  // namespace

Seal take_seal(const std::string& layer, const SealLimits& limits, const SealListed& listed) {
  return Sealer(layer, limits, listed).seal();
}

}  // namespace moorage::layers
