// A changed tree in memory only: new blobs and trees go to a mempack in front of the mirror's
// objects.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/look_memory.h"
#include "repo_cache/formats/attributes.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

// A mirror opened so that writes stay in this process. Not for two threads at a time.
class MemoryRepository {
 public:
  explicit MemoryRepository(const std::string& git_directory);
  git_repository* get() const { return repository_.get(); }
  git_odb* odb() const { return odb_.get(); }
  void forget_writes() const noexcept;

 private:
  GitRepository repository_;
  GitOdb odb_;
  git_odb_backend* mempack_ = nullptr;  // owned by odb_
};

// Attributes read along the queried paths, one .gitattributes at a time. Their rules have a memory
// limit of their own; files over 1 MiB are ignored.
class PathAttributes {
 public:
  PathAttributes(git_repository* repository, git_tree* root)
      : repository_(repository), root_(root) {}
  // Charges them to this memory as well.
  PathAttributes(git_repository* repository, git_tree* root, base::LookMemory& memory)
      : repository_(repository), root_(root), memory_(memory, kMaxRuleBytes) {}
  void add(const std::string& directory, std::string_view bytes);  // instead of the commit's
  void set_deadline(TimeLimit deadline) {
    deadline_ = deadline;
    attributes_.set_deadline(deadline);
  }
  Conversion conversion(const std::string& path);
  // Rules were skipped for lack of memory, or not tried for lack of time.
  bool incomplete() const;
  uint64_t memory_bytes() const { return memory_.used_bytes(); }

  static constexpr uint64_t kMaxFileBytes = 1 << 20;
  static constexpr uint64_t kMaxRuleBytes = 32 << 20;

 private:
  void load(const std::string& directory);
  bool is_directory(const std::string& path) const;

  git_repository* repository_;
  git_tree* root_;
  base::LookMemory memory_{kMaxRuleBytes};
  std::set<std::string, std::less<>> known_;  // directories in attributes_
  std::string last_;  // last queried path: the commit's files on the way there are known
  bool root_loaded_ = false;
  bool left_out_ = false;
  TimeLimit deadline_ = TimeLimit::max();
  Attributes attributes_;
};

// Converts these bytes of a worktree like `git add`; nullopt: no change. Throws resource_exhausted
// without enough memory.
std::optional<std::string> to_git(const MemoryRepository& repository, const Conversion& conversion,
                                  std::string_view bytes, const git_oid* committed,
                                  base::LookMemory& memory);
bool changes_bytes(const Conversion& conversion, uint64_t size);

uint64_t blob_size(git_odb* odb, const git_oid& oid);  // from its header, without reading the blob
// Git's id of an open file, read with pread piece by piece, so that no blob of up to 2 GiB is in
// memory. Of its first `size` bytes. nullopt: the file is shorter now, or the deadline passed.
std::optional<git_oid> blob_id(int fd, uint64_t size, TimeLimit deadline);
GitTreeEntry entry_at(git_tree* root, const std::string& path);  // null: not found

// resource_exhausted: this operation has too many changes, or others took the memory.
[[noreturn]] void throw_no_memory(const base::LookMemory& memory);

// Memory that a part of a diff holds until its end: its charge, and the objects that it wrote.
class DiffMemory {
 public:
  DiffMemory(const MemoryRepository& repository, base::LookMemory& whole, uint64_t max_bytes)
      : repository_(repository), memory_(whole, max_bytes) {}
  ~DiffMemory() { repository_.forget_writes(); }
  DiffMemory(DiffMemory&&) = delete;
  void take(uint64_t bytes);  // resource_exhausted
  base::LookMemory& memory() { return memory_; }

 private:
  const MemoryRepository& repository_;
  base::LookMemory memory_;
};

// The tree of `root` with the changes applied. A stand-in replaces a file over a limit, or beyond
// the memory (the two kinds never compare equal). `attributes` decide about the changes.
enum class StandIn { before, after };
struct ChangedTree {
  GitTree tree;
  std::map<std::string, uint64_t> stand_ins;  // path and size of the replaced file
  std::map<std::string, uint64_t> refused;  // with sizes; git refuses their names; not in the tree
  std::set<std::string> unfaithful;         // a checkout writes other bytes, or may
  uint64_t bytes = 0;                       // size of the kept contents
};
ChangedTree apply_changes(const MemoryRepository& repository, git_tree* root,
                          std::vector<Change> changes, const std::vector<Change>& attributes,
                          const DiffLimits& limits, StandIn stand_in, DiffMemory& memory);
std::vector<Change> attributes_among(const std::vector<Change>& changes);

}  // namespace moorage::repo_cache
