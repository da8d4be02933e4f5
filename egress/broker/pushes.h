// Pushes that wait for the daemon: it knows what was approved, and whether one rewrites history.
// Without its answer in time a push is refused.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/net/push_policy.h"
#include "base/os/event_loop.h"

namespace moorage::egress {

class Pushes {
 public:
  explicit Pushes(base::Loop& loop) : loop_(loop) {}
  Pushes(const Pushes&) = delete;
  Pushes& operator=(const Pushes&) = delete;

  // Reasons against each command; all empty: it may pass.
  using Then = std::function<void(const std::vector<std::string>& reasons)>;
  struct Waiting;
  using Ticket = std::shared_ptr<Waiting>;
  // Calls then once, later, unless the ticket is dropped. Null: too many wait.
  Ticket ask(std::string repository, std::vector<base::PushCommand> commands, Then then);
  // Those after the id, oldest first.
  std::vector<base::PushQuestion> waiting(uint64_t after) const;
  // One that nobody waits for is ignored.
  void answer(const base::PushAnswer& answer);
  void on_question(std::function<void()> listener) { on_question_ = std::move(listener); }

  static constexpr std::chrono::milliseconds kPatience{60'000};
  static constexpr size_t kMaxWaiting = 8;

 private:
  base::Loop& loop_;
  uint64_t last_id_ = 0;
  std::vector<std::weak_ptr<Waiting>> waiting_;
  std::function<void()> on_question_;
};

// What the policy says about each command without asking anybody: a reason, or nothing.
std::vector<std::string> refused_by_policy(const base::PushPolicy& policy,
                                           const std::vector<base::PushCommand>& commands);
// Whether the daemon must be asked about commands that the policy does not refuse.
bool must_ask(const base::PushPolicy& policy, const std::vector<base::PushCommand>& commands);

}  // namespace moorage::egress
