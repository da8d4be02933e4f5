// Best-of: several attempts at one task, each in a fork of a workspace, then one test for all. One
// commit creates it as `preparing` with all its attempts; `begin_running` adds the forks in a
// second one. Choosing the attempt to promote and recording the result are separate commits, so a
// crash between them is visible. The rows stay as history.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "state_db/tables/best_of_lifecycle.h"

namespace moorage::state_db {

class Store;

// The names are part of the API.
enum class Promote : uint8_t { none, first_passing, smallest_diff };
std::string_view promote_name(Promote promote);  // of none: empty
std::optional<Promote> promote_from_name(std::string_view name);
enum class Promotion : uint8_t { none, done, refused };  // none: not finished yet
std::string_view promotion_name(Promotion promotion);

struct NewAttempt {
  std::string label{};        // the name of its patch
  uint64_t patch_offset = 0;  // in the file of all patches
  uint64_t patch_bytes = 0;
};

struct NewBestOf {
  base::WorkspaceId workspace{};
  uint32_t owner_uid = 0;
  std::vector<uint32_t> owner_gids{};
  std::optional<int64_t> lease{};  // its generation, proved when the best-of began
  std::string lease_secret_hash{};
  std::vector<std::string> each{};  // contains {i}; empty: apply patches
  std::vector<std::string> test{};
  std::vector<NewAttempt> attempts{};
  int64_t timeout_ms = 0;  // of each command; 0: no extra limit
  Promote promote = Promote::none;
  uint32_t parallel = 1;
  bool keep = false;  // keep the sandboxes of finished attempts running
  std::optional<std::string> idempotency_key{};
  std::string request_hash{};
};

struct BestOfRow {
  base::BestOfId id{};
  NewBestOf wanted{};  // without attempts and key
  uint64_t patch_bytes = 0;
  BestOfState state = BestOfState::preparing;
  std::string reason{};
  bool cancel_requested = false;
  uint32_t chosen = 0;  // number of the attempt; 0: not chosen yet
  Promotion promotion = Promotion::none;
  std::string promotion_note{};
  int64_t created_wall_ms = 0;
  int64_t ended_wall_ms = 0;

  bool is_open() const { return state == BestOfState::preparing || state == BestOfState::running; }
};

// Compared with the attempt's starting point, before its test ran.
struct AttemptDiff {
  uint64_t files = 0;
  uint64_t added = 0;  // lines
  uint64_t removed = 0;
  uint64_t bytes = 0;  // of the patch
};

struct AttemptRow {
  base::AttemptId id{};
  base::BestOfId best_of{};
  uint32_t number = 0;
  base::WorkspaceId workspace{};  // the fork
  NewAttempt patch{};
  AttemptState state = AttemptState::waiting;
  std::string reason{};
  base::ExecId each_exec{};
  base::ExecId test_exec{};
  std::optional<AttemptDiff> diff{};
  std::string tail{};  // last output of its last command, arbitrary bytes
  int64_t started_wall_ms = 0;
  int64_t ended_wall_ms = 0;

  bool is_under_way() const {
    return state == AttemptState::applying || state == AttemptState::testing;
  }
  bool has_ended() const { return state != AttemptState::waiting && !is_under_way(); }
};

class BestOfTable {
 public:
  explicit BestOfTable(Store& store) : store_(store) {}

  BestOfRow begin(const NewBestOf& wanted);
  // The best-of that (owner_uid, key) began; already_exists: the request_hash differs.
  std::optional<BestOfRow> find_made(const NewBestOf& wanted);
  // preparing -> running; the forks in the order of the attempts.
  void begin_running(base::BestOfId id, const std::vector<base::WorkspaceId>& forks);
  // preparing -> failed, including all attempts. The key becomes reusable.
  void fail_preparing(base::BestOfId id, const std::string& reason);
  void finish(base::BestOfId id, BestOfState to, const std::string& reason);  // running -> to
  // True if it still runs: the mark is durable.
  bool request_cancel(base::BestOfId id);
  void choose(base::BestOfId id, uint32_t number);
  void set_promotion(base::BestOfId id, Promotion promotion, const std::string& note);

  BestOfRow get(base::BestOfId id);  // not_found
  std::optional<BestOfRow> find(base::BestOfId id);
  std::optional<BestOfRow> find_of(base::AttemptId id);
  // The newest 50, or fewer if their commands are long (kMostListedBytes).
  std::vector<BestOfRow> of_workspace(base::WorkspaceId workspace);
  std::vector<base::BestOfId> open();  // preparing or running ones

  std::vector<AttemptRow> attempts(base::BestOfId id);  // by number
  AttemptRow attempt(base::AttemptId id);               // not_found
  uint64_t count_under_way(uint32_t owner_uid);         // unfinished attempts of this user
  void start(base::AttemptId id);                       // waiting -> applying
  void set_each(base::AttemptId id, base::ExecId exec);
  void begin_test(base::AttemptId id, const std::optional<AttemptDiff>& diff);  // -> testing
  void set_test(base::AttemptId id, base::ExecId exec);
  struct End {
    AttemptState state = AttemptState::failed;
    std::string reason{};
    std::string tail{};
  };
  void end(const AttemptRow& row, const End& end);  // from the state that the row says

 private:
  Store& store_;
};

}  // namespace moorage::state_db
