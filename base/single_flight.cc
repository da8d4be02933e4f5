#include "base/single_flight.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moorage::base {
namespace {

constexpr size_t kMaxQueue = 4096;
constexpr std::chrono::minutes kRemembered{10};

}  // namespace

SingleFlight::SingleFlight(size_t threads, std::function<void(Key)> work)
    : threads_(threads),
      work_(std::move(work)),
      pool_(std::make_unique<ThreadPool>(threads, kMaxQueue)) {}

SingleFlight::SingleFlight(size_t threads, std::function<void(Key)> work, Fair)
    : threads_(threads),
      work_(std::move(work)),
      fair_pool_(std::make_unique<FairPool>(threads, kMaxQueue)) {}

SingleFlight::~SingleFlight() {
  std::lock_guard guard(mutex_);
  stopping_ = true;
}

void SingleFlight::request(Key key, uint32_t user) {
  std::lock_guard guard(mutex_);
  enqueue(key, user);
}

bool SingleFlight::wait(Key key, Milliseconds patience, uint32_t user) {
  const auto until = Clock::now() + patience;
  std::unique_lock guard(mutex_);
  enqueue(key, user);
  const auto found = flights_.find(key);
  if (found == flights_.end() || in_vain(key, patience)) return false;
  const std::shared_ptr<Flight> flight = found->second;
  const uint64_t mine = flight->begun + 1;
  return ended_.wait_until(guard, until, [&] { return flight->ended >= mine; });
}

void SingleFlight::forget(Key key) {
  std::lock_guard guard(mutex_);
  past_.erase(key);
}

bool SingleFlight::ran_within(Key key, Milliseconds age) {
  std::lock_guard guard(mutex_);
  const auto found = past_.find(key);
  return found != past_.end() && Clock::now() - found->second.ended <= age;
}

void SingleFlight::enqueue(Key key, uint32_t user) {
  auto& flight = flights_[key];
  if (!flight) flight = std::make_shared<Flight>();
  if (flight->queued) return;
  flight->queued = true;
  flight->user = user;
  if (!flight->running) submit(key, user);  // otherwise the current run does it at its end
}

void SingleFlight::submit(Key key, uint32_t user) {
  auto work = [this, key] { run(key); };
  try {
    if (fair_pool_) return fair_pool_->submit({.user = user}, work);
    pool_->submit(work);
  } catch (const Error&) {
    flights_.erase(key);  // the queue is full: the next request tries again
  }
}

bool SingleFlight::in_vain(Key key, Milliseconds patience) const {
  const auto now = Clock::now();
  const auto is_long = [&](const auto& item) {
    return item.second->running && now - item.second->since > patience;
  };
  if (const auto past = past_.find(key); past != past_.end() && past->second.took > patience) {
    return true;
  }
  if (const auto own = flights_.find(key); own != flights_.end() && is_long(*own)) return true;
  const auto taken = std::count_if(flights_.begin(), flights_.end(), is_long);
  return static_cast<size_t>(taken) == threads_;
}

void SingleFlight::run(Key key) {
  std::unique_lock guard(mutex_);
  if (stopping_) return;
  const std::shared_ptr<Flight> flight = flights_.at(key);
  flight->queued = false;
  flight->running = true;
  flight->since = Clock::now();
  ++flight->begun;
  guard.unlock();
  work_(key);
  guard.lock();
  const auto now = Clock::now();
  flight->running = false;
  flight->ended = flight->begun;
  std::erase_if(past_, [now](const auto& item) { return now - item.second.ended > kRemembered; });
  past_[key] = {now, now - flight->since};
  ended_.notify_all();
  if (flight->queued) {
    submit(key, flight->user);
  } else {
    flights_.erase(key);
  }
}

}  // namespace moorage::base
