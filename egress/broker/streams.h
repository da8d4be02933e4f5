// Streams for git requests that go over ssh: the daemon gives one for each, with a helper at its
// other end that speaks HTTP here and git over ssh there (egress/ssh/ssh_bridge.h).
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/fd.h"

namespace moorage::egress {

class Streams {
 public:
  // `ask` asks the daemon for all that is wanted(); give() or fail() answers.
  using Ask = std::function<void()>;
  Streams(base::Loop& loop, Ask ask);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  struct Purpose {
    std::string credential;  // an ssh key
    std::string service;     // "git-upload-pack"
    std::string path;        // of the repository
  };
  // `stream` does not block; if it is empty, `error` says why.
  using Then = std::function<void(Fd stream, const std::string& error)>;
  using Ticket = std::shared_ptr<void>;
  // Calls then once, later, unless the ticket is dropped.
  Ticket open(Purpose purpose, Then then);
  std::map<uint64_t, Purpose> wanted() const;  // by a number for the answer

  // Unknown numbers are ignored: whoever asked has left.
  void give(uint64_t number, Fd stream);
  void fail(uint64_t number, const std::string& why);

  static constexpr std::chrono::milliseconds kPatience{20'000};

 private:
  struct Waiter;
  void settle(uint64_t number, Fd stream, const std::string& error);

  base::Loop& loop_;
  const Ask ask_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::weak_ptr<Waiter>> waiters_;
};

}  // namespace moorage::egress
