// Best-of: several attempts at one task, side by side. Forks a workspace once for each attempt,
// runs a command or applies a patch in each fork, then runs the test. A passing attempt can be
// promoted; all forks stay. The verbs are here; driver.h drives the attempts, also after a
// restart of the daemon.
//
// All patches are in one file, STORE/workspaces/<ws>/best-of/<bo>, which gets its name in one step:
// if it is missing, the best-of never began. It is removed when all attempts have ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"
#include "state_db/tables/best_of.h"
#include "state_db/tables/execs.h"
#include "workspace/access/leases.h"
#include "workspace/best_of/driver.h"
#include "workspace/context/context.h"
#include "workspace/verbs/snapshots.h"

namespace moorage::workspace {

struct BestOfRequest {
  struct Patch {
    std::string name;  // any bytes, at most 255
    uint64_t bytes = 0;
  };
  uint32_t count = 0;             // 0: as many as patches
  std::vector<std::string> each;  // {i} in a word becomes the attempt's number; or use:
  std::vector<Patch> patches;     // applied with `git apply`, one for each attempt
  std::vector<std::string> test;  // exit code 0: passed
  int64_t timeout_ms = 0;         // of each command
  state_db::Promote promote = state_db::Promote::none;
  uint32_t parallel = 0;  // attempts at once; 0: as many as CPUs
  bool keep = false;      // do not stop the sandboxes of ended attempts
  std::string idempotency_key;
  std::string body_hash;  // hash of the whole request, patches included

  uint64_t patch_bytes() const;
};
inline constexpr uint64_t kMaxPatchBytes = 16 << 20;
inline constexpr uint64_t kMaxAllPatchBytes = 128 << 20;
inline constexpr uint32_t kMaxParallel = 64;
inline constexpr int64_t kMaxAttemptTimeout_ms = int64_t{30} * 24 * 3600 * 1000;

// All checks that need no state. Throws invalid_argument.
void check_request(const BestOfRequest& request);

struct AttemptView {
  state_db::AttemptRow row;
  std::string fork_name;  // set even for a deleted one
  bool fork_is_there = false;
  std::optional<state_db::ExecRow> each;
  std::optional<state_db::ExecRow> test;
};

struct BestOfView {
  state_db::BestOfRow row;
  std::string workspace_name;
  std::vector<AttemptView> attempts;
};

class BestOf {
 public:
  BestOf(Context& context, Leases& leases, BestOfDriver& driver)
      : context_(context), leases_(leases), driver_(driver) {}

  // Makes an unnamed file for the patches, before they arrive in the order of the request.
  base::Fd begin_patches(const Caller& caller, const std::string& name,
                         const BestOfRequest& request);
  // Returns once the forks exist; the attempts continue without the caller. The same key and body
  // return the first one's view.
  BestOfView start(const Caller& caller, const std::string& name, const BestOfRequest& request,
                   base::Fd patches);
  std::vector<BestOfView> list(const Caller& caller, const std::string& name);
  BestOfView show(const Caller& caller, base::BestOfId id);
  // Ends running commands like a cancelled exec; waiting attempts never start. conflict: already
  // over.
  BestOfView cancel(const Caller& caller, base::BestOfId id);

 private:
  std::vector<Leases::Writing> cancel_rights(const Caller& caller, const state_db::BestOfRow& row);

  Context& context_;
  Leases& leases_;
  BestOfDriver& driver_;
};

}  // namespace moorage::workspace
