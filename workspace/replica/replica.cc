#include "workspace/replica/replica.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "state_db/store.h"
#include "workspace/replica/writer.h"

namespace moorage::workspace {
namespace {

using std::chrono::steady_clock;

constexpr int kNice = 10;  // yields to threads that someone waits for

}  // namespace

Replica::Replica(Context& context, Rules rules) : context_(context), rules_(std::move(rules)) {
  status_.directory = rules_.directory;
}

Replica::~Replica() { stop(std::chrono::hours(1)); }

void Replica::start() {
  if (!is_on()) return;
  ended_ = false;
  thread_ = std::thread([this] {
    run();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  });
}

bool Replica::stop(std::chrono::milliseconds patience) {
  if (!thread_.joinable()) return true;
  std::unique_lock lock(mutex_);
  const auto ended = [this] { return ended_; };
  finishing_ = true;
  changed_.notify_all();
  if (!changed_.wait_for(lock, patience / 2, ended)) {
    stopping_ = true;
    changed_.notify_all();
    if (!changed_.wait_for(lock, patience / 2, ended)) return false;
  }
  lock.unlock();
  thread_.join();
  return true;
}

bool Replica::is_finishing() const {
  const std::lock_guard lock(mutex_);
  return finishing_;
}

void Replica::check_stopping() {
  const std::lock_guard lock(mutex_);
  if (stopping_) throw Error(Code::unavailable, "the daemon is stopping");
}

void Replica::pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return stopping_; });
}

void Replica::run() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);  // of this thread, on Linux
  ReplicaWriter writer(
      context_, rules_, [this] { check_stopping(); },
      [this](std::chrono::milliseconds time) { pause(time); });
  for (;;) {
    const bool last = is_finishing();
    const auto begin = steady_clock::now();
    ReplicaStatus next = status();
    std::optional<ReplicaRound> round;
    ++next.rounds;
    next.problem.clear();
    next.hint.clear();
    try {
      round = writer.round();
      next.state = ReplicaState::following;
      next.copied_wall_ms = round->wall_ms;
      next.notes = round->notes;
      next.bytes += round->bytes;
    } catch (const Error& error) {
      next.state =
          error.code() == Code::unsupported ? ReplicaState::refused : ReplicaState::failing;
      next.problem = error.message();
      next.hint = error.hint();
    } catch (const std::exception& error) {
      next.state = ReplicaState::failing;
      next.problem = error.what();
    }
    std::unique_lock lock(mutex_);
    if (stopping_ || last) {
      if (!round)
        base::log(base::LogLevel::warning, "replica.last_changes_missing",
                  {{"directory", rules_.directory}, {"problem", next.problem}});
      return;
    }
    if (!round) ++next.failures;
    if (next.state != status_.state || next.problem != status_.problem) {
      const auto level = round ? base::LogLevel::info : base::LogLevel::error;
      base::log(level, "replica." + std::string(replica_state_name(next.state)),
                {{"directory", rules_.directory}, {"problem", next.problem}, {"hint", next.hint}});
    }
    status_ = next;
    if (round) {
      copied_boot_ms_ = round->boot_ms;
      sealed_ = std::move(round->sealed);
    }
    // Rest at least as long as a long round took, so that rounds never use a whole CPU.
    const auto took =
        std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - begin);
    const auto rest = std::max(rules_.interval - took, std::min(took, rules_.interval));
    changed_.wait_for(lock, rest, [this] { return finishing_; });
  }
}

ReplicaStatus Replica::status() const {
  const std::lock_guard lock(mutex_);
  ReplicaStatus now = status_;
  if (copied_boot_ms_)
    now.behind_ms = std::max<int64_t>(0, context_.store.clock().boot_ms() - *copied_boot_ms_);
  return now;
}

std::optional<OffHostView> Replica::view(base::WorkspaceId id, const std::string& seal) const {
  if (!is_on()) return std::nullopt;
  return OffHostView{std::string(replica_state_name(status().state)), behind_ms(id, seal)};
}

std::optional<int64_t> Replica::behind_ms(base::WorkspaceId id, const std::string& seal) const {
  {
    const std::lock_guard lock(mutex_);
    const auto known = sealed_.find(id);
    if (!seal.empty() && known != sealed_.end() && known->second == seal) return 0;
  }
  return status().behind_ms;
}

}  // namespace moorage::workspace
