#include "base/fair_pool.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "base/error.h"

namespace moorage::base {
namespace {

constexpr size_t kSubjectPart = 4;

}  // namespace

// The pool below never holds more tasks than threads; waiting tasks wait here.
FairPool::FairPool(size_t threads, size_t max_queue)
    : threads_(threads),
      max_queue_(max_queue),
      pool_(threads, std::numeric_limits<size_t>::max()) {}

FairPool::~FairPool() {
  std::unique_lock lock(mutex_);
  drained_.wait(lock, [this] { return users_.empty(); });
}

void FairPool::submit(const Share& share, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = users_.try_emplace(share.user);
  User& user = found->second;
  if (is_new) user.turn = turns_;
  if (user.waiting.size() >= max_queue_) {
    throw Error(
        Code::resource_exhausted,
        "too many of your requests are waiting (" + std::to_string(user.waiting.size()) + ")",
        "try again in a moment");
  }
  user.waiting.push_back({share, std::move(work)});
  dispatch();
}

// This user's first task whose subject may use one more thread.
std::deque<FairPool::Task>::iterator FairPool::next_of(User& user) {
  const size_t most = std::max<size_t>(1, threads_ / kSubjectPart);
  return std::find_if(user.waiting.begin(), user.waiting.end(), [&](const Task& task) {
    if (task.share.subject.empty()) return true;
    const auto has = user.subjects.find(task.share.subject);
    return has == user.subjects.end() || has->second < most;
  });
}

void FairPool::dispatch() {
  while (running_ < threads_) {
    const size_t free = threads_ - running_;
    User* chosen = nullptr;
    std::deque<Task>::iterator task;
    for (auto& [uid, user] : users_) {
      if (user.running > 0 && user.running >= free) continue;
      const std::pair place(user.running, user.turn);
      if (chosen != nullptr && place >= std::pair(chosen->running, chosen->turn)) continue;
      const auto next = next_of(user);
      if (next == user.waiting.end()) continue;
      chosen = &user;
      task = next;
    }
    if (chosen == nullptr) return;
    auto begun = std::make_shared<Task>(std::move(*task));
    chosen->waiting.erase(task);
    chosen->running += 1;
    chosen->turn = ++turns_;
    if (!begun->share.subject.empty()) chosen->subjects[begun->share.subject] += 1;
    running_ += 1;
    try {
      pool_.submit([this, begun] { run(*begun); });
    } catch (...) {  // no thread can be created: only the first submit sees this
      end(begun->share);
      throw;
    }
  }
}

void FairPool::end(const Share& share) {
  running_ -= 1;
  User& user = users_.at(share.user);
  user.running -= 1;
  if (const auto has = user.subjects.find(share.subject); has != user.subjects.end()) {
    if (--has->second == 0) user.subjects.erase(has);
  }
  if (user.running == 0 && user.waiting.empty()) users_.erase(share.user);
}

void FairPool::run(Task& task) {
  task.work();
  task.work = nullptr;  // frees what it holds outside the lock
  const std::lock_guard lock(mutex_);
  end(task.share);
  dispatch();
  if (users_.empty()) drained_.notify_all();
}

}  // namespace moorage::base
