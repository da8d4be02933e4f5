#include "egress/broker/push_gate.h"

#include <algorithm>

namespace moorage::egress {
namespace {

bool refuses(const std::vector<std::string>& reasons) {
  return std::ranges::any_of(reasons, [](const std::string& why) { return !why.empty(); });
}

}  // namespace

void PushGate::judge(Pushes& pushes, Exchange& exchange, Push push) {
  const std::shared_ptr<PushGate> gate(new PushGate(pushes, exchange, std::move(push)));
  exchange.gather([gate] { gate->on_body(); });
}

// More of it may come while the daemon thinks.
void PushGate::on_body() {
  if (decided_ || ticket_) return;
  const PushHead::State state = head_.read(exchange_.gathered());
  if (state == PushHead::State::invalid) return exchange_.refuse(head_.trouble());
  if (state == PushHead::State::incomplete) {
    if (exchange_.gathered_all()) exchange_.refuse("the push ended before its commands did");
    return;
  }
  if (head_.commands().empty()) {
    if (exchange_.gathered_all()) pass();
    return;
  }
  const auto reasons = refused_by_policy(push_.policy, head_.commands());
  if (refuses(reasons)) return refuse(reasons);
  must_ask(push_.policy, head_.commands()) ? ask() : pass();
}

void PushGate::ask() {
  // Without a cycle: the exchange may end first.
  ticket_ = pushes_.ask(push_.repository, head_.commands(),
                        [weak = weak_from_this()](const std::vector<std::string>& reasons) {
                          if (const auto gate = weak.lock()) gate->decide(reasons);
                        });
  if (ticket_) return;
  refuse(std::vector<std::string>(head_.commands().size(),
                                  "too many pushes wait for a decision; push again"));
}

// The caller holds this.
void PushGate::decide(const std::vector<std::string>& reasons) {
  ticket_.reset();
  refuses(reasons) ? refuse(reasons) : pass();
  push_.go_on();
}

void PushGate::pass() {
  decided_ = true;
  push_.pass();
}

// All of them: the pack behind the commands is one.
void PushGate::refuse(std::vector<std::string> reasons) {
  decided_ = true;
  for (std::string& why : reasons) {
    if (why.empty()) why = "another ref of this push was refused";
  }
  if (!head_.can_report()) return exchange_.refuse(reasons.front());
  exchange_.answer_at_end(kPushAnswerType, head_.refusal(reasons));
}

}  // namespace moorage::egress
