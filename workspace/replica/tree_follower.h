// Follows a tree under writers for the replica: each pass adds to a pack what was created, changed
// or removed since the previous pass. A file counts as unchanged if inode number and change time
// are those recorded, and the change was not too recent then (layers/copy.h). A file changed in the
// last seconds, or mapped for writing, is sent again in the next round, because a write through a
// mapping need not show. The walk uses pinned descriptors and never follows a link or enters
// another mount. It is not atomic: files of a tree under writers come from different moments. But
// "objects" is visited last in a directory, so no reference or index of a git repository arrives
// without its objects. Records come from the disk in walk order, and the names of a directory in
// pieces: memory does not grow with a tree.
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

#include "packs/delta_pack.h"
#include "state_db/tables/seen_tree.h"

namespace moorage::workspace {

// What the follower has recorded of a tree, and its form in the lists of packs
// (packs/delta_pack.h). It is kept on disk (state_db/tables/seen_tree.h), and a list is read and
// written line by line, so no tree is too large for it.
//
// A line is "path NUL inode time size dl LF", or "path NUL - LF" for a path removed with everything
// below it. A later line replaces an earlier one; one for a path that is not a directory removes
// everything below it.
class TreeRecord {
 public:
  explicit TreeRecord(state_db::SeenDatabase& database) : seen_(database) {}

  state_db::SeenTree& seen() { return seen_; }
  // Writes the lines of this round's changes and ends the round.
  void end_round(const std::function<void(std::string_view line)>& sink);
  // Takes a list in parts; corrupted: not a list.
  void read(std::string_view part);
  void end_of_list();

 private:
  void take(std::string_view path, std::string_view facts);
  state_db::SeenTree seen_;
  std::string unread_;
};

struct FollowedTree {
  struct Root {
    std::string prefix;  // of its paths: "tree"; empty: the only root
    std::string path;
  };
  std::vector<Root> roots;
  std::function<bool(std::string_view path)> wanted = {};  // empty: all
  std::function<bool(std::string_view path)> grows = {};   // an append-only file
  std::set<ino_t> mapped = {};                             // files in doubt
  int64_t mapped_looked_ns = INT64_MAX;  // when `mapped` was read: layers/change_time.h
};

struct FollowResult {
  uint64_t changes = 0;
  uint64_t removals = 0;
  uint64_t skipped = 0;  // nested too deep, or of a type that overlays do not use
  uint64_t cut = 0;      // over kMaxFileAttributesBytes: copied without some user.*
};

class TreeFollower {
 public:
  // `pack` returns the pack to write to, created at its first use. `check_stopping` is called now
  // and then, and may throw to stop.
  TreeFollower(const FollowedTree& tree, TreeRecord& record,
               std::function<packs::PackWriter&()> pack, std::function<void()> check_stopping)
      : tree_(tree),
        record_(record),
        pack_(std::move(pack)),
        check_stopping_(std::move(check_stopping)) {}
  // Runs passes until one finds nothing new, up to a limit. Discard the record after an exception.
  // Throws not_found if a root is missing.
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
  const std::function<packs::PackWriter&()> pack_;
  const std::function<void()> check_stopping_;
  uint64_t names_bytes_ = 0;  // for the directories on the walk's path
  unsigned pass_ = 0;
  FollowResult result_;
};

}  // namespace moorage::workspace
