// What may be taken of the disk together: by the store, by one repository (mirror, base trees, its
// workspaces), by one user: the workspaces, deleted ones included until they are purged, and what
// exports wrote that is not read yet. Sums of rows, as last measured; nothing is walked. Who is
// over is first helped by collection; what cannot be reclaimed safely refuses new workspaces of
// that user or repository. Nobody's running work is touched.
#pragma once

#include <cstdint>

#include "workspace/context.h"
#include "workspace/export_spools.h"
#include "workspace/gc.h"

namespace moorage::workspace {

struct BudgetLimits {  // 0: none
  uint64_t store_bytes = 0;
  uint64_t store_files = 0;
  uint64_t repo_bytes = 0;
  uint64_t user_bytes = 0;
};

class Budgets {
 public:
  Budgets(Context& context, Gc& gc, ExportSpools& exports, BudgetLimits limits)
      : context_(context), gc_(gc), exports_(exports), limits_(limits) {}
  // Throws resource_exhausted: no workspace more for this user on this repository.
  void admit(uint32_t owner_uid, base::RepoId repository);

 private:
  struct Budget;
  void admit_under(const Budget& budget);

  Context& context_;
  Gc& gc_;
  ExportSpools& exports_;
  const BudgetLimits limits_;
};

}  // namespace moorage::workspace
