// Verbs that wait for commands to end, without a thread. A verb that must wait throws `Waiting`; by
// then it has changed nothing and holds no lock. Its caller gives the call to Waiters, which repeat
// it when one of those commands has ended, or at `until`. The repeat reads the progress from the
// rows, so no state is passed along. If the daemon dies before the repeat, the verb was not carried
// out, as after a crash before its intent.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"

namespace moorage::workspace {

struct Waiting : public std::exception {
  using Clock = std::chrono::steady_clock;
  Waiting(std::vector<base::ExecId> ends, std::string what_for,
          std::optional<Clock::time_point> at_most = {})
      : execs(std::move(ends)), text(std::move(what_for)), until(at_most) {}
  const char* what() const noexcept override { return text.c_str(); }

  std::vector<base::ExecId> execs;  // any of them; empty: only the time
  std::string text;                 // "pre_stop ex_3 of web runs"
  std::optional<Clock::time_point> until;
};

class Waiters {
 public:
  // `resume` is called once, from any thread, and must not block: it submits the call to a pool. If
  // it throws, for example on a full queue, it is retried a second later. It must not call Waiters.
  using Resume = std::function<void()>;
  explicit Waiters(std::function<bool(base::ExecId)> has_ended)
      : has_ended_(std::move(has_ended)) {}

  void resume_later(const Waiting& waiting, Resume resume);
  void exec_ended(base::ExecId exec);
  void look();   // call it about once a second: resumes those that are due
  void leave();  // resumes nothing from now on; drops those that wait
  size_t size();

 private:
  struct Waiter {
    std::set<base::ExecId> execs;
    std::optional<Waiting::Clock::time_point> until;
    Resume resume;
  };
  bool may_have_ended(base::ExecId exec) const;
  void resume_if(const std::function<bool(const Waiter&)>& due);  // under the lock

  const std::function<bool(base::ExecId)> has_ended_;
  std::mutex mutex_;
  bool left_ = false;
  std::list<Waiter> waiters_;
};

}  // namespace moorage::workspace
