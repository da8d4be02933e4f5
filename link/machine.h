// The machine of one sandbox, by its driver: found or made, our programs put there, moorage-outpost
// started. Blocking; one call at a time. Programs are named by their digest, so putting them is
// needed once for each machine and release: the first try just runs them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/wire/link_config.h"
#include "link/driver.h"

namespace moorage::link {

// Returns the provider's key, or throws why there is none. Called before the first call to the
// provider, and again after a refusal: the key may have been replaced.
using KeyReader = std::function<std::string()>;

class RemoteMachine {
 public:
  RemoteMachine(const base::LinkConfig& config, KeyReader key);

  struct Way {
    bool put_programs = false;  // the last try found none there
    bool may_create = true;     // false: a machine that is gone is not_found
    bool may_resume = true;     // false: one that its provider paused is left so, see is_asleep()
  };
  // A stream to the outpost of this sandbox.
  std::unique_ptr<Run> connect(const Way& way, Deadline deadline);
  // Whether connect() or extend() found the machine paused; true once.
  bool take_resumed() { return std::exchange(resumed_, false); }
  // Whether the last connect() found it paused, and left it so.
  bool is_asleep() const { return asleep_; }
  // Longer than a sandbox is idle by default before the daemon stops it (sandbox.idle_stop_s).
  static constexpr std::chrono::minutes kLife{35};
  void extend(Deadline deadline);  // for kLife from now on; throws as Driver::extend
  // Connected, and nothing of the sandbox is left there. Throws unsupported if it cannot pause.
  void pause(Deadline deadline);
  // Once it is connected: as far as config.provider_rules allow.
  void let_out(Deadline deadline);
  // Once it is connected. 0 s: never.
  std::chrono::seconds extend_every() const { return driver_->extend_every(); }
  bool exists(Deadline deadline);  // the sandbox there, of this generation
  // Nothing of the sandbox is left there, whether or not it is connected.
  void remove(Deadline deadline);

 private:
  Driver& driver();
  void refuse_paused(Deadline deadline);
  std::unique_ptr<Run> run_outpost(const Way& way, Deadline deadline);
  [[noreturn]] void throw_why_missing(const Error& error, Deadline deadline);
  void put(const std::string& program, const std::string& name, Deadline deadline);

  const base::LinkConfig config_;
  const KeyReader key_;
  std::unique_ptr<Driver> driver_;  // empty: not known to have a good key
  Labels labels_;
  Machine machine_;  // without an id: not known yet
  bool resumed_ = false;
  bool asleep_ = false;
  std::string digest_;  // of both programs: their directory below bin/
};

// All machines of the store that config.name is of.
std::vector<Machine> machines_of_store(const base::LinkConfig& config, Deadline deadline);
// A line of `moorage-link list`, without its end..
std::string machine_text(const Machine& machine);

}  // namespace moorage::link
