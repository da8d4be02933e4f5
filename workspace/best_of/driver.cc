#include "workspace/best_of/driver.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <tuple>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "state_db/tables/snapshots.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {
namespace {

using state_db::AttemptRow;
using state_db::AttemptState;
using state_db::BestOfRow;
using state_db::BestOfState;
using state_db::BestOfTable;
using state_db::Promotion;

MOORAGE_CRASH_POINT(after_forks, "best_of.after_forks");
MOORAGE_CRASH_POINT(after_pick, "best_of.after_pick");
MOORAGE_CRASH_POINT(after_choice, "best_of.after_choice");
MOORAGE_CRASH_POINT(after_promotion, "best_of.after_promotion");
MOORAGE_CRASH_POINT(before_outcome, "best_of.before_outcome");

constexpr size_t kThreads = 8;

// Limit for all best-ofs of one user together, so that no user waits for another.
uint64_t most_under_way() {
  constexpr uint64_t kLeast = 16;
  return std::max<uint64_t>(kLeast, uint64_t{4} * std::thread::hardware_concurrency());
}

// Best-ofs and attempts share the threads; the key's lowest bit says which one it is.
int64_t key_of(base::BestOfId id) { return id.value * 2; }
int64_t key_of(base::AttemptId id) { return id.value * 2 + 1; }

std::string directory_of(const Options& options, base::WorkspaceId workspace) {
  return options.store + "/workspaces/" + workspace.str() + "/best-of";
}

void remove_patches(const Options& options, const BestOfRow& row) {
  if (row.patch_bytes == 0) return;
  base::remove_tree(patches_path(options, row.wanted.workspace, row.id));
  rmdir(directory_of(options, row.wanted.workspace).c_str());  // fails while other patches remain
}

std::optional<uint32_t> first_passing(const std::vector<AttemptRow>& attempts) {
  for (const auto& attempt : attempts) {
    if (attempt.state == AttemptState::passed) return attempt.number;
    if (!attempt.has_ended()) return std::nullopt;
  }
  return std::nullopt;
}

auto size_of(const AttemptRow& attempt) {
  constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
  const uint64_t bytes = attempt.diff ? attempt.diff->bytes : kUnknown;
  const uint64_t lines = attempt.diff ? attempt.diff->added + attempt.diff->removed : kUnknown;
  return std::tuple(bytes, lines, attempt.number);
}

std::optional<uint32_t> smallest_diff(const std::vector<AttemptRow>& attempts) {
  const AttemptRow* smallest = nullptr;
  for (const auto& attempt : attempts) {
    if (!attempt.has_ended()) return std::nullopt;
    if (attempt.state != AttemptState::passed) continue;
    if (smallest == nullptr || size_of(attempt) < size_of(*smallest)) smallest = &attempt;
  }
  if (smallest == nullptr) return std::nullopt;
  return smallest->number;
}

// With the lease of its request: it does not override a later holder's.
Caller requester_of(const BestOfRow& row) {
  Caller caller = owner_of(row);
  if (row.wanted.lease)
    caller.leases = {{row.wanted.workspace, *row.wanted.lease, row.wanted.lease_secret_hash}};
  return caller;
}

// Derived from the workspace's current snapshot.
bool is_promoted(Context& context, const BestOfRow& row, const AttemptRow& attempt) {
  state_db::SnapshotTable table(context.store);
  const auto workspace = state_db::WorkspaceTable(context.store).get(row.wanted.workspace);
  // A promotion that was cut with its sandbox finishes after the daemon answers
  // (workspace/recovery/repairs.h).
  const auto taking = table.taking(workspace.id);
  for (auto at = taking && taking->next_on ? taking->next_on : workspace.stands_on; at;) {
    const auto snapshot = table.get(at);
    if (snapshot.workspace == attempt.workspace &&
        snapshot.cause == state_db::SnapshotCause::promote) {
      return true;
    }
    at = snapshot.parent;
  }
  return false;
}

// The first best-of of a workspace makes NAME-1, NAME-2...; a later one NAME-bo7-1, NAME-bo7-2...
std::string fork_stem(Context& context, const BestOfRow& row) {
  constexpr size_t kLongest =
      40;  // leaves room for the number, and for a second one if it is taken
  for (const auto& other : BestOfTable(context.store).of_workspace(row.wanted.workspace)) {
    if (other.id.value >= row.id.value) continue;
    const auto workspace = state_db::WorkspaceTable(context.store).get(row.wanted.workspace);
    return workspace.name.substr(0, kLongest) + "-bo" + std::to_string(row.id.value);
  }
  return {};
}

void cancel_waiting(Context& context, const std::vector<AttemptRow>& attempts,
                    const std::string& reason) {
  for (const auto& one : attempts) {
    if (one.state == AttemptState::waiting)
      BestOfTable(context.store).end(one, {AttemptState::cancelled, reason, ""});
  }
}

}  // namespace

std::string patches_path(const Options& options, base::WorkspaceId workspace, base::BestOfId id) {
  return directory_of(options, workspace) + "/" + id.str();
}

std::string beginning_lock(base::WorkspaceId workspace) { return workspace.str() + " best-of"; }

Caller owner_of(const BestOfRow& row) {
  return {.uid = row.wanted.owner_uid, .gids = row.wanted.owner_gids};
}

BestOfDriver::Work::Work(BestOfDriver& driver) : driver_(driver) {
  const std::lock_guard lock(driver_.flights_mutex_);
  driver_.flights_ = std::make_unique<base::SingleFlight>(
      kThreads, [&driver](int64_t key) { driver.fly(key); }, base::SingleFlight::Fair{});
}

BestOfDriver::Work::~Work() {
  driver_.stopping_ = true;
  std::unique_ptr<base::SingleFlight> flights;
  {
    const std::lock_guard lock(driver_.flights_mutex_);
    flights = std::move(driver_.flights_);
  }
  flights.reset();  // waits for running work, which can no longer request more
}

// Each user has a share of the threads: measuring an attempt may take long.
void BestOfDriver::request_flight(int64_t key) {
  BestOfTable table(context_.store);
  const auto row = key % 2 == 0 ? table.find(base::BestOfId{key / 2}) : table.find_of({key / 2});
  if (!row) return;
  const std::lock_guard lock(flights_mutex_);
  if (flights_) flights_->request(key, row->wanted.owner_uid);
}

void BestOfDriver::request(base::BestOfId id) { request_flight(key_of(id)); }
void BestOfDriver::request(base::AttemptId id) { request_flight(key_of(id)); }

void BestOfDriver::fly(int64_t key) {
  try_step("best_of.step", std::to_string(key / 2), [&] {
    try {
      if (key % 2 == 0) return drive({key / 2});
      drive_attempt({key / 2});
    } catch (const Waiting& waiting) {  // a hook runs before the sandbox stops
      waiters_.resume_later(waiting, [this, key] { request_flight(key); });
    }
  });
}

void BestOfDriver::at_start() {
  BestOfTable table(context_.store);
  for (const auto id : table.open()) {
    try_step("best_of.at_start", id.str(), [&] {
      const auto row = table.get(id);
      if (row.chosen == 0 || row.promotion != Promotion::none) return;
      // The workspace has not changed since, so it shows whether the promotion completed.
      const auto attempts = table.attempts(id);
      if (is_promoted(context_, row, attempts.at(row.chosen - 1)))
        table.set_promotion(id, Promotion::done, "");
    });
  }
}

void BestOfDriver::tick() {
  try_step("best_of.look", "", [&] {
    for (const auto id : BestOfTable(context_.store).open()) request(id);
  });
}

void BestOfDriver::exec_ended(const state_db::ExecRow& exec) {
  decltype(awaited_)::node_type attempt;
  {
    const std::lock_guard lock(mutex_);
    attempt = awaited_.extract(exec.id);
  }
  if (attempt) request(attempt.mapped());
}

void BestOfDriver::make_forks(const BestOfRow& row, const Caller& caller) {
  BestOfTable table(context_.store);
  ForkRequest wanted;
  wanted.count = static_cast<uint32_t>(table.attempts(row.id).size());
  wanted.stem = fork_stem(context_, row);
  wanted.labels["best-of"] = row.id.str();
  wanted.idempotency_key = row.id.str();
  std::vector<base::WorkspaceId> forks;
  for (const auto& fork : snapshots_.fork(caller, row.wanted.workspace.str(), wanted))
    forks.push_back(fork.row.id);
  after_forks.pass();
  table.begin_running(row.id, forks);
}

// The daemon died between intent and forks, or between forks and `running`. Forks have a key, so
// the second call finds those of the first.
void BestOfDriver::settle_preparing(const BestOfRow& row) {
  const auto guard = lock_if_free(context_, beginning_lock(row.wanted.workspace));
  if (!guard) return;  // its verb is running
  BestOfTable table(context_.store);
  if (table.get(row.id).state != BestOfState::preparing) return;
  const std::string patches = patches_path(context_.options, row.wanted.workspace, row.id);
  try {
    if (row.patch_bytes > 0 && !base::path_exists(patches)) {
      throw Error(Code::conflict,
                  "the daemon stopped before it saved the patches; start the best-of again");
    }
    make_forks(row, requester_of(row));
  } catch (const Error& error) {
    if (stopping_) throw;
    remove_patches(context_.options, row);
    table.fail_preparing(row.id, error.message());
  }
}

void BestOfDriver::drive(base::BestOfId id) {
  BestOfTable table(context_.store);
  auto row = table.get(id);
  if (row.state == BestOfState::preparing) settle_preparing(row);
  row = table.get(id);
  if (row.state != BestOfState::running) return;
  auto attempts = table.attempts(id);
  if (row.cancel_requested) {
    cancel_waiting(context_, attempts, "cancelled before it started");
  } else if (const auto chosen = row.chosen == 0 ? choose_attempt(row.wanted.promote, attempts)
                                                 : std::optional<uint32_t>()) {
    table.choose(id, *chosen);
    after_choice.pass();
    row = table.get(id);
  }
  if (row.chosen > 0) {
    cancel_waiting(context_, attempts,
                   "not run: attempt " + std::to_string(row.chosen) + " passed before it");
    if (row.promotion == Promotion::none && !row.cancel_requested)
      promote(row, attempts.at(row.chosen - 1));
  }
  start_waiting(table.get(id), table.attempts(id));
  attempts = table.attempts(id);
  for (const auto& one : attempts) {
    if (one.is_under_way()) request(one.id);
  }
  const bool ended = std::all_of(attempts.begin(), attempts.end(),
                                 [](const AttemptRow& one) { return one.has_ended(); });
  if (!ended) return;
  row = table.get(id);
  // Attempts may have ended after the choice was checked: check again.
  if (row.chosen == 0 && !row.cancel_requested && choose_attempt(row.wanted.promote, attempts))
    return request(id);
  if (row.chosen > 0 && row.promotion == Promotion::none && !row.cancel_requested)
    return request(id);
  finish(row, attempts);
}

void BestOfDriver::start_waiting(const BestOfRow& row, const std::vector<AttemptRow>& attempts) {
  if (row.cancel_requested || row.chosen > 0) return;
  const std::lock_guard lock(mutex_);
  BestOfTable table(context_.store);
  const uint64_t most = most_under_way();
  uint64_t all = table.count_under_way(row.wanted.owner_uid);
  auto here = std::count_if(attempts.begin(), attempts.end(),
                            [](const AttemptRow& one) { return one.is_under_way(); });
  for (const auto& one : attempts) {
    if (all >= most || here >= static_cast<int64_t>(row.wanted.parallel)) return;
    if (one.state != AttemptState::waiting) continue;
    table.start(one.id);
    after_pick.pass();
    ++all;
    ++here;
  }
}

void BestOfDriver::promote(const BestOfRow& row, const AttemptRow& attempt) {
  BestOfTable table(context_.store);
  try {
    snapshots_.promote(requester_of(row), attempt.workspace.str(), false);
    after_promotion.pass();
    table.set_promotion(row.id, Promotion::done, "");
  } catch (const Error& error) {
    if (stopping_) throw;  // the next start retries it
    table.set_promotion(row.id, Promotion::refused, error.message());
  }
}

// By the setting workspace.delete_losers: their owner can undelete them. Done before the outcome,
// so that a daemon that died meanwhile does it again.
void BestOfDriver::delete_losers(const BestOfRow& row, const std::vector<AttemptRow>& attempts) {
  const bool wanted = context_.options.delete_losers && !row.wanted.keep;
  if (!wanted || row.promotion != Promotion::done) return;
  state_db::WorkspaceTable workspaces(context_.store);
  for (const auto& one : attempts) {
    if (one.number == row.chosen || !one.workspace) continue;
    if (workspaces.get(one.workspace).state != state_db::WorkspaceState::ready) continue;
    try_step("best_of.delete_loser", one.workspace.str(),
             [&] { deletion_.remove(owner_of(row), one.workspace.str(), {.force = true}); });
  }
}

void BestOfDriver::finish(const BestOfRow& row, const std::vector<AttemptRow>& attempts) {
  delete_losers(row, attempts);
  const auto passed = std::count_if(attempts.begin(), attempts.end(), [](const AttemptRow& one) {
    return one.state == AttemptState::passed;
  });
  remove_patches(context_.options, row);
  before_outcome.pass();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& one : attempts) fed_.erase(one.id);
  }
  const std::string reason =
      std::to_string(passed) + " of " + std::to_string(attempts.size()) + " passed";
  BestOfTable(context_.store)
      .finish(row.id, row.cancel_requested ? BestOfState::cancelled : BestOfState::done, reason);
  base::log(base::LogLevel::info, "best_of.ended",
            {{"bo", row.id},
             {"ws", row.wanted.workspace},
             {"attempts", attempts.size()},
             {"passed", passed},
             {"chosen", row.chosen},
             {"promotion", state_db::promotion_name(row.promotion)}});
}

std::optional<uint32_t> choose_attempt(state_db::Promote promote,
                                       const std::vector<AttemptRow>& attempts) {
  if (promote == state_db::Promote::first_passing) return first_passing(attempts);
  if (promote == state_db::Promote::smallest_diff) return smallest_diff(attempts);
  return std::nullopt;
}

}  // namespace moorage::workspace
