// Takes every best-of to its end, step by step from its rows, so that it makes no difference
// whether this daemon began it. A step that is repeated finds what the first did: forks and
// commands have keys made of its id ("bo_3", "bo_3/2/test"), so none is made or run twice, and a
// command that was cut is `interrupted`, and its attempt with it. Nothing waits on a thread for a
// command: the end of one asks for the next step.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/flights.h"
#include "state_db/best_of.h"
#include "workspace/comparison.h"
#include "workspace/context.h"
#include "workspace/execs.h"
#include "workspace/snapshots.h"
#include "workspace/workspaces.h"

namespace moorage::workspace {

std::string patches_path(const Options& options, base::WorkspaceId workspace, base::BestOfId id);
// Held from before its row is made until it runs, so that nobody else takes it for one that was
// cut.
std::string beginning_lock(base::WorkspaceId workspace);
// As whom it is driven: with the rights of who began it, asked anew at every step, and no lease.
Caller owner_of(const state_db::BestOfRow& row);
void carry_lease(const state_db::BestOfRow& row, Caller& caller);  // the one of the request

class BestOfDriver {
 public:
  BestOfDriver(Context& context, Workspaces& workspaces, Execs& execs, Snapshots& snapshots,
               Comparison& comparison);

  // Its threads, which use the verbs and the watcher: made after those, ended before them. Without
  // them nothing is driven.
  class Work {
   public:
    explicit Work(BestOfDriver& driver);
    ~Work();
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    BestOfDriver& driver_;
  };

  void at_start();  // before the API answers: what a crash cut is settled
  void look();      // every second: what nothing else has woken
  void request(base::BestOfId id);
  void request(base::AttemptId id);
  void exec_ended(const state_db::ExecRow& exec);

  // Makes the forks of one that is being prepared; all of them are its owner's.
  void make_forks(const state_db::BestOfRow& row, const Caller& caller);

 private:
  void request_flight(int64_t key);
  void fly(int64_t key);
  void drive(base::BestOfId id);
  void drive_attempt(base::AttemptId id);
  void settle_preparing(const state_db::BestOfRow& row);
  void start_waiting(const state_db::BestOfRow& row,
                     const std::vector<state_db::AttemptRow>& attempts);
  void cancel_waiting(const std::vector<state_db::AttemptRow>& attempts, const std::string& reason);
  void promote(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt);
  bool is_promoted(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt);
  void finish(const state_db::BestOfRow& row, const std::vector<state_db::AttemptRow>& attempts);

  // One step each. False: it waits for something, or has ended.
  bool step(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt);
  bool apply(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt);
  bool test(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt);
  state_db::ExecRow run(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt,
                        ExecRequest request, base::ExecId known);
  state_db::ExecRow start_once(const Caller& caller, base::WorkspaceId fork, ExecRequest request);
  void feed(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt, base::ExecId exec);
  void end(const state_db::BestOfRow& row, const state_db::AttemptRow& attempt,
           state_db::BestOfs::End end, base::ExecId exec);
  std::string tail_of(const Caller& caller, base::ExecId exec);

  Context& context_;
  Workspaces& workspaces_;
  Execs& execs_;
  Snapshots& snapshots_;
  Comparison& comparison_;
  std::atomic<bool> stopping_{false};
  std::mutex flights_mutex_;
  std::unique_ptr<base::Flights> flights_;  // while there is Work
  std::mutex mutex_;               // guards the next, and is held while attempts are picked
  std::set<base::AttemptId> fed_;  // their patches went in whole
};

}  // namespace moorage::workspace
