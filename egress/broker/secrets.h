// The secrets of this sandbox's credentials, while they are fresh. They come from outside through a
// pipe, when a request first needs one, and are kept nowhere else.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/fd.h"

namespace moorage::egress {

class Secrets {
 public:
  // `ask` asks the daemon for a secret; fill() or fail() answers, from nobody if it is away.
  using Ask = std::function<void(const std::string& credential)>;
  Secrets(base::Loop& loop, Ask ask);
  ~Secrets();
  Secrets(const Secrets&) = delete;
  Secrets& operator=(const Secrets&) = delete;

  struct Found {
    std::string secret;
    std::string error;   // why there is none
    bool fresh = false;  // it came for this request
  };
  using Then = std::function<void(const Found&)>;
  using Ticket = std::shared_ptr<void>;
  // Calls then once, now or later, unless the ticket is dropped.
  Ticket get(const std::string& credential, Then then);
  // The host did not accept it: the next request asks again.
  void forget(const std::string& credential);
  void forget_all();
  std::vector<std::string> wanted() const;  // that requests wait for

  // The secret is what comes from the pipe until its end, without a last line feed.
  void fill(const std::string& credential, Fd pipe);
  void fail(const std::string& credential, const std::string& why);

  static constexpr std::chrono::milliseconds kPatience{20'000};
  static constexpr std::chrono::milliseconds kFresh{60'000};  // so a rotation is seen in a minute
  static constexpr size_t kMaxSecret = 64 << 10;

 private:
  struct Entry;
  struct Waiter;
  Entry& entry(const std::string& credential);
  void on_pipe(const std::string& credential);
  void settle(const std::string& credential, const Found& found);

  base::Loop& loop_;
  const Ask ask_;
  std::map<std::string, std::unique_ptr<Entry>> entries_;
};

}  // namespace moorage::egress
