// Machines elsewhere (backends/remote/machines.h) that no sandbox here uses any more: they could
// not be reached when their sandbox was destroyed, or nothing here knows them. `sweep` removes them
// on threads of its own and never waits for a machine. It speaks with one place at a time once, and
// waits longer after each failure. A place that does not answer is reported as such: nothing is
// claimed about its machines. A machine that may have changes of a workspace is removed only once
// they are here (salvage.h).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/remote/machines.h"
#include "base/thread_pool.h"
#include "workspace/context/context.h"
#include "workspace/recovery/salvage.h"

namespace moorage::workspace {

struct UnusedMachine {
  std::string backend;
  backends::MachineNote note;
  bool noted = true;                  // false: only its place lists it
  bool configured = true;             // false: the configuration no longer has its place
  std::optional<LeftMachine> left{};  // it may have changes of a workspace
};

// What a place answered to `ask`.
struct PlaceAnswer {
  std::string backend;
  std::string place;
  std::vector<std::string> sandboxes{};
  std::string error{};  // not empty: it did not answer
  std::string hint{};
};

class MachineSweep {
 public:
  struct Rules {
    int64_t first_pause_ms = 15'000;  // after a failure; doubled after each
    int64_t longest_pause_ms = 600'000;
    int64_t list_every_ms = 600'000;             // also finds machines without a note
    std::chrono::milliseconds deadline{30'000};  // of one errand
    std::chrono::milliseconds salvage_deadline{1'800'000};
  };
  MachineSweep(Context& context, Salvage& salvage) : MachineSweep(context, salvage, Rules{}) {}
  MachineSweep(Context& context, Salvage& salvage, const Rules& rules);

  // Those with a note. Asks nobody.
  std::vector<UnusedMachine> unused();
  // Those that the answers list and nothing here knows, now.
  std::vector<UnusedMachine> unknown(const std::vector<PlaceAnswer>& answers);
  // Asks every place at once; one that has not answered after `patience` is reported so.
  std::vector<PlaceAnswer> ask(std::chrono::milliseconds patience);
  // Begins what is due; `now`: everything, also what waits for a person. Never waits.
  void sweep(bool now = false);
  // False: a visit that sweep() began still goes on.
  bool wait(std::chrono::milliseconds patience);

 private:
  using Place = std::pair<std::string, std::string>;  // backend, place
  struct Visits {
    bool busy = false;
    bool again = false;    // somebody wants everything, and the visit that goes on may not do it
    int64_t retry_ms = 0;  // boot time; not earlier
    int64_t list_ms = 0;
    int64_t pause_ms = 0;
    std::string error{};  // of the last visit
  };
  void begin(const Place& place, bool now, bool has_unused);
  struct Scope {
    bool list = false;  // also those without a note
    bool now = false;
  };
  void visit(const Place& place, Scope scope);
  void remove_all(const Place& place, Scope scope);
  void remove(const UnusedMachine& one, bool now);
  // True: another visit must follow at once, with everything.
  bool end(const Place& place, bool listed, const std::string& error);

  Context& context_;
  Salvage& salvage_;
  const Rules rules_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::map<Place, Visits> visits_;
  base::ThreadPool askers_;  // these two last: their work uses the members above
  base::ThreadPool visitors_;
};

}  // namespace moorage::workspace
