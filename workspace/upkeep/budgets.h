// Limits on disk use: of the store, of one repository (mirror, base trees, its workspaces), of one
// user (workspaces, deleted ones included until they are purged, and exports not yet read). Sums of
// rows as last measured; no directory is walked. Over the limit, collection frees space first; if
// it cannot free enough safely, new workspaces of that user or repository are refused. Running work
// continues.
#pragma once

#include <cstdint>

#include "workspace/access/admission.h"
#include "workspace/archive/export_spools.h"
#include "workspace/context/context.h"
#include "workspace/upkeep/gc.h"

namespace moorage::workspace {

struct BudgetLimits {  // 0: no limit
  uint64_t store_bytes = 0;
  uint64_t store_files = 0;
  uint64_t repo_bytes = 0;
  uint64_t user_bytes = 0;
};

class Budgets : public Admission {
 public:
  Budgets(Context& context, Gc& gc, ExportSpools& exports, BudgetLimits limits)
      : context_(context), gc_(gc), exports_(exports), limits_(limits) {}
  void admit(uint32_t owner_uid, base::RepoId repository) override;

 private:
  struct Budget;
  void admit_under(const Budget& budget);

  Context& context_;
  Gc& gc_;
  ExportSpools& exports_;
  const BudgetLimits limits_;
};

}  // namespace moorage::workspace
