// Collection: carries out what gc_plan.h decides, until enough is free. Each row is decided again
// under its lock and in the transaction that takes it, so a create that came in between wins: it
// finds its base tree gone and makes it again (create.cc), or the collector finds it used. One run
// at a time. Every eviction leaves an event with its reason.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/flights.h"
#include "workspace/active.h"
#include "workspace/gc_plan.h"
#include "workspace/integrity.h"
#include "workspace/repositories.h"

namespace moorage::workspace {

class Gc {
 public:
  struct Hooks {
    // Archives one workspace at rest; what it gave back. Not set: nothing here can.
    std::function<uint64_t(base::WorkspaceId, const std::string& reason)> archive_one = {};
    std::function<bool(const state_db::WorkspaceRow&)> is_leased = {};
  };
  struct Rules {
    int64_t archive_after_ms = 7LL * 24 * 3'600'000;
    bool archive_elsewhere = false;
    // Asked for not longer ago: a create has it ready and is about to stand on it.
    std::chrono::milliseconds lately{600'000};
  };
  // What is looked at; nothing set: all.
  struct Scope {
    base::RepoId repository;
    std::optional<uint32_t> owner_uid;
  };
  struct Result {
    std::vector<GcRow> rows;  // what went, with what it gave back; what did not, with the reason
    uint64_t freed_bytes = 0;
    bool enough = false;
  };

  Gc(Context& context, Active& active, Repositories& repositories, Rules rules, Hooks hooks);

  std::vector<GcRow> plan(const Scope& scope = {});
  // Takes rows of the plan in its order until `enough` says so. Conflict: another run goes on.
  Result run(const std::string& reason, const Scope& scope, const std::function<bool()>& enough);
  // The same on a thread of its own, until twice of what is kept back is free. Never waits.
  void request();

 private:
  void make_room();
  void clear_strays();
  std::optional<uint64_t> take(const GcRow& row, const std::string& reason);
  std::optional<uint64_t> take_cache(const GcRow& row, const std::string& reason);
  std::shared_ptr<void> begin_run();  // until it is let go of, no other one begins
  std::optional<uint64_t> take_workspace(const GcRow& row, const std::string& reason);
  void record(const GcRow& row, const std::string& reason);

  Context& context_;
  Active& active_;
  Repositories& repositories_;
  const Rules rules_;
  const Hooks hooks_;
  IntegrityCheck integrity_;
  std::mutex mutex_;
  std::condition_variable run_ended_;
  bool runs_ = false;
  base::Flights flights_;  // last: its thread uses the rest
};

}  // namespace moorage::workspace
