// The rounds that update the replica. One round copies the database into memory, copies everything
// that it refers to (of each tree the changes since the previous round), then publishes the copy
// with its packs. So a published copy is always complete, and files that only an older copy needs
// are removed after that copy. After a restart, or after the directory was away, everything known
// about it is read from it again.
//
// The store is not changed and no verb waits: a round only locks layers; only collection asks for
// those locks, and it does not wait for them. A layer's removal is recorded in the database first,
// so a pack counts only if its tree was still needed after it was read. Otherwise the copy of the
// database is too old, and the round takes a new one.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "state_db/tables/database_copy.h"
#include "workspace/context/context.h"
#include "workspace/context/live_sandboxes.h"
#include "workspace/replica/directory.h"
#include "workspace/replica/published_copy.h"
#include "workspace/replica/replica.h"
#include "workspace/replica/tree_follower.h"

namespace moorage::workspace {

struct ReplicaRound {
  int64_t boot_ms = 0;  // the moment that the copy shows
  int64_t wall_ms = 0;
  uint64_t packs = 0;
  uint64_t bytes = 0;                                 // of the packs
  std::map<base::WorkspaceId, std::string> sealed{};  // stopped and completely copied: their seals
  std::vector<std::string> notes{};                   // things that could not be copied
};

class ReplicaWriter {
 public:
  // `check_stopping` is called now and then, and may throw to stop. `pause` waits, and returns
  // early to stop.
  ReplicaWriter(Context& context, const Replica::Rules& rules, std::function<void()> check_stopping,
                std::function<void(std::chrono::milliseconds)> pause)
      : context_(context),
        rules_(rules),
        check_stopping_(std::move(check_stopping)),
        pause_(std::move(pause)) {}
  ~ReplicaWriter();
  // Throws on a failure; the next round continues from there.
  ReplicaRound round();

 private:
  struct Tree {
    ReplicaSeries series;
    std::unique_ptr<TreeRecord> record;  // null: read it from the packs
  };
  struct Kept {
    uint64_t number;
    ReplicaManifest manifest;
  };
  enum class Followed : uint8_t { yes, stale };

  void open(const state_db::Needs& needs);
  void open_seen();
  void load_copies();
  void load_record(const std::string& name, Tree& tree);
  Followed bring(const state_db::Needs& needs);
  Followed bring_layer(const state_db::NeededLayer& layer);
  Followed bring_history(const state_db::NeededHistory& history);
  void bring_mirror(base::RepoId repository);
  void bring_home();
  Followed bring_archive(const state_db::NeededArchive& archive);
  // False: `is_valid` rejected the result.
  bool follow(const std::string& name, const FollowedTree& followed, const std::string& mark,
              const std::function<bool()>& is_valid);
  bool is_needed(const state_db::NeededLayer& layer) const;
  void require_store(const state_db::Needs& needs);
  void publish(const state_db::DatabaseCopy& copy);
  void prune();

  Context& context_;
  const Replica::Rules& rules_;
  const std::function<void()> check_stopping_;
  const std::function<void(std::chrono::milliseconds)> pause_;
  std::unique_ptr<ReplicaDirectory> directory_;
  std::unique_ptr<state_db::SeenDatabase> seen_;  // outlives the records in it
  std::map<std::string, Tree> trees_;
  std::set<std::string> archives_;  // present in the directory
  std::deque<Kept> kept_;           // oldest first
  std::vector<uint64_t> damaged_;   // unreadable copies
  uint64_t next_number_ = 1;
  std::string published_;  // digest of the last copy
  std::map<base::LayerId, std::chrono::steady_clock::time_point> missing_;
  ReplicaManifest manifest_;  // of the current round
  ReplicaRound round_;
  uint64_t removals_ = 0;
};

}  // namespace moorage::workspace
