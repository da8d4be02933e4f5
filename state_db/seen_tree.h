// What was seen of trees that a copy elsewhere follows (workspace/replica_follow.h), however many
// entries they have: in a scratch database on the disk of the store, of which only a cache of
// bounded size is in memory. Its file has no name and ends with the process; nothing in it is
// synced, as all of it can be read again from the copy. So it has no journal either: after a failed
// statement nothing in it counts any more.
//
// A tree is walked in one order, and its entries come in that order: a directory before what is in
// it, names by their bytes, but "objects" behind all others (replica_follow.h says why).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "state_db/connection.h"

namespace moorage::state_db {

inline constexpr std::string_view kWalkedLast = "objects";

struct SeenEntry {
  std::string path{};
  uint64_t inode = 0;
  int64_t changed_ns = 0;
  int64_t looked_ns = 0;  // when it was sent; 0: in doubt, to be sent again
  uint64_t size = 0;
  bool linked = false;  // has several names
  bool directory = false;
  bool gone = false;     // since the last round; all below it went with it
  bool cleared = false;  // in this round: whatever the path was before went, with all below it
};

class SeenDatabase {
 public:
  explicit SeenDatabase(const std::string& directory);  // on whose disk it is
  SeenDatabase(const SeenDatabase&) = delete;
  SeenDatabase& operator=(const SeenDatabase&) = delete;

  // A statement failed: its trees are of no use.
  bool broken() const { return broken_; }
  // As if one had: its trees need not go one by one.
  void abandon() { broken_ = true; }

 private:
  friend class SeenTree;
  template <typename Work>
  auto guarded(const Work& work);

  Connection connection_;
  std::recursive_mutex mutex_;
  bool broken_ = false;
  int64_t last_tree_ = 0;
};

// One tree, empty at first. Used by one thread, as its database is.
class SeenTree {
 public:
  explicit SeenTree(SeenDatabase& database);
  ~SeenTree();  // its entries go
  SeenTree(const SeenTree&) = delete;
  SeenTree& operator=(const SeenTree&) = delete;

  std::optional<SeenEntry> find(const std::string& path);  // one that is gone, too
  void put(const SeenEntry& entry);                        // by its path; seen in this round
  void set_gone(const std::string& path);                  // until the end of the round
  void erase(const std::string& path);
  void erase_below(const std::string& path);
  // Other names of a file that are not gone are in doubt; returns how many.
  uint64_t doubt_names(uint64_t inode, const std::string& except);

  // A walk along all entries, in their order. Each of these goes on from where the one before was.
  void start_walk();
  // The next entry before `path`, which was passed over; nothing: there is none (any more).
  std::optional<SeenEntry> passed_over(const std::string& path);
  std::optional<SeenEntry> rest();  // the same, to the end
  // Once none was passed over: the entry itself.
  std::optional<SeenEntry> arrive(const std::string& path);

  // Files with several names that were sent in this walk.
  struct SentLink {
    std::string path;
    int64_t changed_ns = 0;
  };
  void put_link(uint64_t inode, const SentLink& link);
  std::optional<SentLink> find_link(uint64_t inode);

  // What was put, went or came into doubt in this round, in the order of a walk.
  void list_round(const std::function<void(const SeenEntry&)>& sink);
  void end_round();

 private:
  std::optional<SeenEntry> next_before(const std::string* key);
  void fill();

  SeenDatabase& database_;
  const int64_t tree_;
  int64_t round_ = 1;
  struct Ahead {
    std::string key;
    SeenEntry entry;
  };
  std::deque<Ahead> ahead_;  // of the walk
  std::string walked_;       // key of the last that was taken from there
  bool at_end_ = false;
};

}  // namespace moorage::state_db
