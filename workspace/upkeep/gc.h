// Collection: carries out the plan of gc_plan.h until enough space is free. Each row is decided
// again under its lock and in the transaction that takes it, so a create in between wins: either it
// finds its base tree gone and makes it again (workspace/verbs/create.cc), or the collector finds
// the tree in use. One run at a time. Every eviction leaves an event with its reason.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/single_flight.h"
#include "workspace/upkeep/gc_plan.h"
#include "workspace/verbs/archives.h"

namespace moorage::workspace {

class Gc {
 public:
  // Limits a run to a repository or an owner; unset: everything.
  struct Scope {
    base::RepoId repository;
    std::optional<uint32_t> owner_uid;
  };
  struct Result {
    std::vector<GcRow> rows;  // taken rows with the bytes freed, kept rows with the reason
    uint64_t freed_bytes = 0;
    bool enough = false;
  };

  Gc(Context& context, Leases& leases, Repositories& repositories, IntegrityCheck& integrity,
     Archives& archives, GcRules rules)
      : context_(context),
        leases_(leases),
        repositories_(repositories),
        integrity_(integrity),
        archives_(archives),
        rules_(rules),
        flights_(1, [this](int64_t) { make_room(); }) {}

  std::vector<GcRow> plan(const Scope& scope = {});
  // Takes the plan's rows in order until `enough` is true. Throws conflict: another run goes on.
  Result run(const std::string& reason, const Scope& scope, const std::function<bool()>& enough);
  // The same on its own thread, until twice the reserve is free. Never waits.
  void request() { flights_.request(0); }

 private:
  void make_room();
  void clear_strays();
  std::optional<uint64_t> take(const GcRow& row, const std::string& reason);
  std::optional<uint64_t> take_cache(const GcRow& row, const std::string& reason);
  std::shared_ptr<void> begin_run();  // no other run begins until this is released
  std::optional<uint64_t> take_workspace(const GcRow& row, const std::string& reason);
  void record(const GcRow& row, const std::string& reason);

  Context& context_;
  Leases& leases_;
  Repositories& repositories_;
  IntegrityCheck& integrity_;
  Archives& archives_;
  const GcRules rules_;
  std::mutex mutex_;
  std::condition_variable run_ended_;
  bool runs_ = false;
  base::SingleFlight flights_;  // last member: its thread uses the others
};

}  // namespace moorage::workspace
