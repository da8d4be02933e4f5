#include "egress/broker/streams.h"

#include <fcntl.h>

namespace moorage::egress {

struct Streams::Waiter {
  explicit Waiter(base::Loop& loop) : patience(loop) {}
  Purpose purpose;
  Then then;
  base::Timer patience;
};

Streams::Streams(base::Loop& loop, Ask ask) : loop_(loop), ask_(std::move(ask)) {}
Streams::~Streams() = default;

Streams::Ticket Streams::open(Purpose purpose, Then then) {
  const uint64_t number = ++last_;
  auto waiter = std::make_shared<Waiter>(loop_);
  waiter->purpose = std::move(purpose);
  waiter->then = std::move(then);
  waiter->patience.start(kPatience,
                         [this, number] { fail(number, "ssh did not start in time; try again"); });
  std::erase_if(waiters_, [](const auto& one) { return one.second.expired(); });
  waiters_[number] = waiter;
  ask_();
  return waiter;
}

std::map<uint64_t, Streams::Purpose> Streams::wanted() const {
  std::map<uint64_t, Purpose> all;
  for (const auto& [number, waiter] : waiters_) {
    if (const auto waits = waiter.lock()) all[number] = waits->purpose;
  }
  return all;
}

void Streams::give(uint64_t number, Fd stream) {
  fcntl(stream.get(), F_SETFL, O_NONBLOCK);
  settle(number, std::move(stream), {});
}

void Streams::fail(uint64_t number, const std::string& why) { settle(number, {}, why); }

void Streams::settle(uint64_t number, Fd stream, const std::string& error) {
  const auto found = waiters_.find(number);
  if (found == waiters_.end()) return;
  const auto waiter = found->second.lock();
  waiters_.erase(found);
  if (!waiter) return;
  waiter->patience.stop();
  waiter->then(std::move(stream), error);
}

}  // namespace moorage::egress
