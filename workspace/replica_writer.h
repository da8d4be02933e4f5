// The rounds of a copy of the store elsewhere. One round: the database is copied into memory; what
// that copy refers to is brought over, of each tree what changed since the round before; then the
// copy is published with the packs that belong to it. So what is published is always whole, and
// what an older, still kept copy needs goes only after that copy went. All that is known of the
// directory is read from it again after a restart, or when it was away.
//
// Nothing of the store is changed and no verb waits: the locks that are held meanwhile are those of
// layers, which collection alone asks for, and not twice. Whoever takes a layer away says so in the
// database before; so a pack counts only if its tree was still to be there when it was read. If it
// was not, the copy of the database is too old, and a new one is taken.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "state_db/database_copy.h"
#include "workspace/active.h"
#include "workspace/context.h"
#include "workspace/replica_copy.h"
#include "workspace/replica_directory.h"
#include "workspace/replica_follow.h"

namespace moorage::workspace {

struct ReplicaRound {
  int64_t boot_ms = 0;  // of the moment that is in the copy now
  int64_t wall_ms = 0;
  uint64_t packs = 0;
  uint64_t bytes = 0;                                 // of these
  std::map<base::WorkspaceId, std::string> sealed{};  // at rest and all there: their seals
  std::vector<std::string> notes{};                   // what could not be copied
};

class ReplicaWriter {
 public:
  struct Rules {
    std::string directory;
    bool same_disk = false;
    std::string store_image{};  // empty: the store lies on its directory's own file system
  };
  // `look` is called now and then: may throw, to stop. `pause` waits, and returns early to stop.
  ReplicaWriter(Context& context, Active& active, Rules rules, std::function<void()> look,
                std::function<void(std::chrono::milliseconds)> pause);
  ~ReplicaWriter();
  // Throws what went wrong; the next round begins where this one came to.
  ReplicaRound round();

 private:
  struct Tree;
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
  // False: `is_valid` said that it does not count.
  bool follow(const std::string& name, const FollowedTree& followed, const std::string& mark,
              const std::function<bool()>& is_valid);
  bool is_needed(const state_db::NeededLayer& layer) const;
  void require_store(const state_db::Needs& needs);
  void publish(const state_db::DatabaseCopy& copy);
  void prune();

  Context& context_;
  Active& active_;
  const Rules rules_;
  const std::function<void()> look_;
  const std::function<void(std::chrono::milliseconds)> pause_;
  std::unique_ptr<ReplicaDirectory> directory_;
  std::unique_ptr<state_db::SeenDatabase> seen_;  // outlives the records in it
  std::map<std::string, Tree> trees_;
  std::set<std::string> archives_;  // that are there
  std::deque<Kept> kept_;           // oldest first
  std::vector<uint64_t> damaged_;   // copies that cannot be read
  uint64_t next_number_ = 1;
  std::string published_;  // digest of the last one
  std::map<base::LayerId, std::chrono::steady_clock::time_point> missing_;
  ReplicaManifest manifest_;  // in the making
  ReplicaRound round_;
  uint64_t removals_ = 0;
};

}  // namespace moorage::workspace
