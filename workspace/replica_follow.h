// Follows a tree that others write, for a copy elsewhere: each pass tells what came, changed or
// went since the one before, as changes in a pack. A file is as it was when inode number and change
// time are those that were seen, and that time was not the present then (layer_copy.h); what was
// changed in the last seconds, or is mapped to be written, is sent again in the next round, as a
// write through a mapping need not show. A tree is walked below pinned descriptors, never through a
// link or onto another mount. The walk is no moment: a tree that is written meanwhile comes as a
// moving camera sees it. But "objects" are the last that is looked at in a directory, so of a git
// repository no reference or index comes without what it names. What was seen before comes from the
// disk in the order of the walk, beside it, and the names of a directory in pieces: memory does not
// grow with a tree.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "workspace/replica_pack.h"
#include "workspace/replica_record.h"

namespace moorage::workspace {

// What travels with a file: of overlay's marks those that mean something on another disk, not where
// a file came from (origin), nor what was noted to be fast.
bool is_replicated_attribute(std::string_view name);

struct FollowedTree {
  struct Root {
    std::string prefix;  // of its paths: "tree"; empty: none, and the only root
    std::string path;
  };
  std::vector<Root> roots;
  std::function<bool(std::string_view path)> wanted = {};  // empty: all
  std::function<bool(std::string_view path)> grows = {};   // a file that is only added to
  std::set<ino_t> mapped = {};                             // files in doubt
  int64_t mapped_looked_ns = INT64_MAX;  // when it was looked which these are: change_time.h
};

struct FollowResult {
  uint64_t changes = 0;
  uint64_t removals = 0;
  uint64_t skipped = 0;  // nested too deep, or neither file nor what overlays are made of
  uint64_t cut = 0;      // exceed kMaxFileAttributesBytes: some of their user.* are left out
};

class TreeFollower {
 public:
  // `pack` gives the one that is written to, made when it is first needed. `look` is called now and
  // then: may throw, to stop.
  TreeFollower(const FollowedTree& tree, TreeRecord& record, std::function<PackWriter&()> pack,
               std::function<void()> look);
  ~TreeFollower();
  // Passes until one finds nothing new, or some. After an exception the record is of no use. Throws
  // not_found when a root is not there.
  FollowResult follow();

 private:
  struct Directory;
  using Seen = state_db::SeenEntry;
  bool pass();
  std::optional<Seen> arrive(const std::string& path);
  void enter(const Directory& directory);
  void take(const Directory& directory, const std::string& name);
  bool visit(const Directory& directory, const std::string& name, const std::string& path,
             const Seen* known);
  bool is_known(const Seen* known, const std::string& path, const struct stat& now) const;
  bool send(const Directory& directory, const std::string& name, const std::string& path,
            const Seen* known, const struct stat& now);
  bool send_file(const Directory& directory, const std::string& name, const std::string& path,
                 const Seen* known);
  void send_pieces(int file, uint64_t from, uint64_t size);
  void send_data(int file, uint64_t from, uint64_t size);
  void send_marks(int file, uint64_t known_bytes);
  void send_directory(const std::string& path, int fd, const struct stat& now);
  void note(const std::string& path, const struct stat& now, int64_t looked_ns);
  void remove(const Seen& gone);

  const FollowedTree& tree_;
  TreeRecord& record_;
  const std::function<PackWriter&()> pack_;
  const std::function<void()> look_;
  uint64_t names_bytes_ = 0;  // of the directories that the walk is in
  unsigned pass_ = 0;
  FollowResult result_;
};

}  // namespace moorage::workspace
