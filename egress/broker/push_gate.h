// Holds a push until its commands are judged: by the policy, then, if that is not enough, by the
// daemon.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "egress/broker/exchange.h"
#include "egress/broker/git_request.h"
#include "egress/broker/pushes.h"

namespace moorage::egress {

class PushGate : public std::enable_shared_from_this<PushGate> {
 public:
  struct Push {
    std::string repository{};  // its URL
    base::PushPolicy policy{};
    std::function<void()> pass{};   // it may pass
    std::function<void()> go_on{};  // after one of the two happened later
  };
  // Reads the commands. Calls pass(), or answers the exchange; now or later.
  static void judge(Pushes& pushes, Exchange& exchange, Push push);

 private:
  PushGate(Pushes& pushes, Exchange& exchange, Push push)
      : pushes_(pushes), exchange_(exchange), push_(std::move(push)) {}
  void on_body();
  void ask();
  void decide(const std::vector<std::string>& reasons);
  void pass();
  void refuse(std::vector<std::string> reasons);

  Pushes& pushes_;
  Exchange& exchange_;  // holds this while it gathers
  Push push_;
  PushHead head_;
  bool decided_ = false;
  Pushes::Ticket ticket_;
};

}  // namespace moorage::egress
