#include "workspace/recovery/repairs.h"

#include "base/error.h"
#include "base/log.h"
#include "state_db/tables/integrity.h"
#include "workspace/chain/integrity.h"
#include "workspace/context/try_step.h"

namespace moorage::workspace {

using state_db::IntegrityState;

struct Repairs::Progress {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  std::optional<state_db::IntegrityRow> before;  // saved when the repair became overdue
};

Repairs::~Repairs() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Repairs::add(base::WorkspaceId workspace, Step step) {
  if (const auto known = places_.find(workspace); known != places_.end())
    return entries_.at(known->second).steps.push_back(std::move(step));
  try {
    auto guard = std::make_shared<base::KeyedMutex::Guard>(
        context_.locks.lock(workspace.str(), "repair", std::chrono::milliseconds(0)));
    entries_.push_back({workspace, std::move(guard), {std::move(step)}});
    places_[workspace] = entries_.size() - 1;
  } catch (const base::Error& error) {
    if (error.code() != base::Code::conflict) throw;
  }
}

void Repairs::add_last(Step step) { last_.push_back({{}, nullptr, {std::move(step)}}); }

void Repairs::start() {
  for (auto& entry : last_) entries_.push_back(std::move(entry));
  last_.clear();
  places_.clear();
  thread_ = std::thread([this] { run(); });
}

bool Repairs::stop(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  return changed_.wait_for(lock, patience,
                           [this] { return (done_ || !thread_.joinable()) && at_work_ == 0; });
}

bool Repairs::wait(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, patience, [this] { return done_; });
}

void Repairs::run() {
  while (!entries_.empty()) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      at_work_ += 1;
    }
    Entry entry = std::move(entries_.front());
    entries_.pop_front();
    try_step("mend", entry.workspace.str(), [&] { mend(std::move(entry)); });
  }
  base::log(base::LogLevel::info, "workspaces.settled");
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

void Repairs::mend(Entry entry) {
  const auto workspace = entry.workspace;
  const auto progress = std::make_shared<Progress>();
  workers_.submit([this, entry = std::move(entry), progress]() mutable {
    std::string trouble;
    for (const auto& step : entry.steps) {
      try {
        step();
      } catch (const std::exception& error) {
        trouble = error.what();
        base::log(base::LogLevel::error, "mend",
                  {{"subject", entry.workspace}, {"error", trouble}});
      }
    }
    const std::lock_guard lock(progress->mutex);
    try_step("mend.outcome", entry.workspace.str(),
             [&] { write_outcome(entry.workspace, *progress, trouble); });
    entry.guard.reset();
    progress->over = true;
    progress->changed.notify_all();
    const std::lock_guard ended(mutex_);
    at_work_ -= 1;
    changed_.notify_all();
  });
  std::unique_lock lock(progress->mutex);
  if (progress->changed.wait_for(lock, deadline_, [&] { return progress->over; })) return;
  progress->before = state_db::IntegrityTable(context_.store).get(workspace);
  set_needs_repair(context_, workspace,
                   "the repair did not finish within " + std::to_string(deadline_.count() / 1000) +
                       " s and continues");
}

// Restores the state from before the repair became overdue, because nothing else is known.
void Repairs::write_outcome(base::WorkspaceId workspace, const Progress& progress,
                            const std::string& trouble) {
  if (!trouble.empty()) return set_needs_repair(context_, workspace, trouble);
  const auto& before = progress.before;
  state_db::IntegrityTable table(context_.store);
  const bool says_overdue = before && before->state != IntegrityState::needs_repair &&
                            before->state != IntegrityState::unknown &&
                            table.get(workspace).state == IntegrityState::needs_repair;
  if (says_overdue) return table.set(workspace, before->state, before->reason);
  clear_needs_repair(context_, workspace);
}

void RoundWork::begin(const base::Share& share, const char* event, std::function<void()> step) {
  {
    const std::lock_guard lock(mutex_);
    if (!at_work_.insert(share.subject).second) return;
    waited_for_.insert(share.subject);
  }
  pool_.submit(share, [this, subject = share.subject, event, step = std::move(step)] {
    try {
      step();
    } catch (const std::exception& error) {
      base::log(base::LogLevel::error, event, {{"subject", subject}, {"error", error.what()}});
    }
    const std::lock_guard lock(mutex_);
    at_work_.erase(subject);
    waited_for_.erase(subject);
    ended_.notify_all();
  });
}

void RoundWork::wait() {
  std::unique_lock lock(mutex_);
  ended_.wait_for(lock, patience_, [this] { return waited_for_.empty(); });
  waited_for_.clear();
}

}  // namespace moorage::workspace
