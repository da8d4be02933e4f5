// The entries last seen in trees that a replica follows (workspace/replica/tree_follower.h), in any
// number: in a scratch database on the disk of the store, with a bounded cache in memory. Its file
// has no name and ends with the process. Nothing in it is synced or journaled, as all of it can be
// read again from the replica; after a failed statement its contents are invalid.
//
// A tree is walked in one order, and its entries come in that order: a directory before its
// contents, names by their bytes, but "objects" last (workspace/replica/tree_follower.h explains
// why).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "state_db/connection.h"

namespace moorage::state_db {

class Statement;

inline constexpr std::string_view kWalkedLast = "objects";

struct SeenEntry {
  std::string path{};
  uint64_t inode = 0;
  int64_t changed_ns = 0;
  int64_t looked_ns = 0;  // when it was sent; 0: in doubt, to be sent again
  uint64_t size = 0;
  bool linked = false;  // has several names
  bool directory = false;
  bool gone = false;     // since the last round, with everything below it
  bool cleared = false;  // in this round: the path's old object was removed, with all below
};

class SeenDatabase {
 public:
  explicit SeenDatabase(const std::string& directory);  // selects the disk
  SeenDatabase(SeenDatabase&&) = delete;

  // A statement failed: its trees are invalid.
  bool broken() const { return broken_; }
  // Marks it broken, so that its trees need not be removed one by one.
  void abandon() { broken_ = true; }

 private:
  friend class SeenTree;
  template <typename Work>
  auto guarded(const Work& work);
  Statement prepare(std::string_view sql);
  int64_t run(std::string_view sql, const auto&... values);

  Connection connection_;
  std::recursive_mutex mutex_;
  bool broken_ = false;
  int64_t last_tree_ = 0;
};

// One tree, empty at first. Used by one thread, like its database.
class SeenTree {
 public:
  explicit SeenTree(SeenDatabase& database);
  ~SeenTree();  // removes its entries
  SeenTree(SeenTree&&) = delete;

  std::optional<SeenEntry> find(const std::string& path);  // may be a removed one
  void put(const SeenEntry& entry);                        // by its path; seen in this round
  void set_gone(const std::string& path);                  // until the end of the round
  void erase(const std::string& path);
  void erase_below(const std::string& path);
  // Puts the other existing names of a file in doubt; returns how many.
  uint64_t doubt_names(uint64_t inode, const std::string& except);

  // A walk along all entries in order. Each of these calls continues where the previous one ended.
  void start_walk();
  // The next entry that sorts before `path` and was skipped; empty: no more.
  std::optional<SeenEntry> passed_over(const std::string& path);
  std::optional<SeenEntry> rest();  // the same, to the end
  // After passed_over() returned empty: the entry itself.
  std::optional<SeenEntry> arrive(const std::string& path);

  // Files with several names that were sent in this walk.
  struct SentLink {
    std::string path;
    int64_t changed_ns = 0;
  };
  void put_link(uint64_t inode, const SentLink& link);
  std::optional<SentLink> find_link(uint64_t inode);

  // Entries put, removed or put in doubt in this round, in the order of a walk.
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
  std::string walked_;       // key of the last entry taken from there
  bool at_end_ = false;
};

}  // namespace moorage::state_db
