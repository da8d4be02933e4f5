// Drives every best-of to its end, step by step from its rows, so that it does not matter which
// daemon began it. A repeated step finds the results of the first: forks and commands have keys
// derived from the best-of's id ("bo_3", "bo_3/2/test"), so none is made or run twice, and an
// interrupted command makes its attempt `interrupted`. No thread waits for a command: the end of
// one requests the next step.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/single_flight.h"
#include "state_db/tables/best_of.h"
#include "workspace/context/context.h"
#include "workspace/context/waiters.h"
#include "workspace/verbs/compare.h"
#include "workspace/verbs/deletion.h"
#include "workspace/verbs/execs.h"
#include "workspace/verbs/snapshots.h"
#include "workspace/verbs/start_stop.h"

namespace moorage::workspace {

std::string patches_path(const Options& options, base::WorkspaceId workspace, base::BestOfId id);
// Held from before its row exists until it runs, so that nobody mistakes it for an interrupted one.
std::string beginning_lock(base::WorkspaceId workspace);
// The caller that drives it: has the starter's rights, checked again at each step, but no lease.
Caller owner_of(const state_db::BestOfRow& row);

// Chooses the attempt of a best-of to promote, from rows alone. first_passing: the lowest number
// that passed, known once all before it have ended; being faster by luck does not win.
// smallest_diff: the passing attempt whose patch has the fewest bytes (then lines, then the lower
// number), known once all have ended; unmeasured ones come last. nullopt: none, or not known yet.
// `attempts` are sorted by number.
std::optional<uint32_t> choose_attempt(state_db::Promote promote,
                                       const std::vector<state_db::AttemptRow>& attempts);

class BestOfDriver : public ExecListener {
 public:
  BestOfDriver(Context& context, Waiters& waiters, StartStop& start_stop, Execs& execs,
               Snapshots& snapshots, Comparison& comparison, Deletion& deletion)
      : context_(context),
        waiters_(waiters),
        start_stop_(start_stop),
        execs_(execs),
        snapshots_(snapshots),
        comparison_(comparison),
        deletion_(deletion) {}

  // Its threads, which use the verbs and the watcher: create it after those, destroy it before
  // them. Nothing is driven without it.
  class Work {
   public:
    explicit Work(BestOfDriver& driver);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    BestOfDriver& driver_;
  };

  void at_start();  // before the API answers: cleans up after a crash
  void tick();      // every second: drives all that nothing else woke
  void request(base::BestOfId id);
  void request(base::AttemptId id);
  void exec_ended(const state_db::ExecRow& exec) override;

  // Makes the forks during `preparing`; the owner owns all of them.
  void make_forks(const state_db::BestOfRow& row, const Caller& caller);

 private:
  void request_flight(int64_t key);
  void fly(int64_t key);
  void drive(base::BestOfId id);
  void drive_attempt(base::AttemptId id);
  void settle_preparing(const state_db::BestOfRow& row);
  void start_waiting(const state_db::BestOfRow& row,
                     const std::vector<state_db::AttemptRow>& attempts);
  void promote(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt);
  void delete_losers(const state_db::BestOfRow& row,
                     const std::vector<state_db::AttemptRow>& attempts);
  void finish(const state_db::BestOfRow& row, const std::vector<state_db::AttemptRow>& attempts);

  // One step each. False: it waits for something, or has ended.
  bool apply(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt);
  bool test(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt);
  state_db::ExecRow run(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt,
                        ExecRequest request, base::ExecId known);
  state_db::ExecRow await(state_db::ExecRow exec, base::AttemptId attempt);
  state_db::ExecRow start_once(const Caller& caller, base::WorkspaceId fork, ExecRequest request);
  void feed(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt, base::ExecId exec);
  void end(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt,
           state_db::BestOfTable::End end, base::ExecId exec);
  std::string tail_of(const Caller& caller, base::ExecId exec);

  Context& context_;
  Waiters& waiters_;
  StartStop& start_stop_;
  Execs& execs_;
  Snapshots& snapshots_;
  Comparison& comparison_;
  Deletion& deletion_;
  std::atomic<bool> stopping_{false};
  std::mutex flights_mutex_;
  std::unique_ptr<base::SingleFlight> flights_;  // while there is Work
  std::mutex mutex_;  // guards the members below, and is held while attempts are picked
  std::set<base::AttemptId> fed_;                    // their patches were fed completely
  std::map<base::ExecId, base::AttemptId> awaited_;  // the attempt that each command belongs to
};

}  // namespace moorage::workspace
