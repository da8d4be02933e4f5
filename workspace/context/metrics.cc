#include "workspace/context/metrics.h"

#include <algorithm>

namespace moorage::workspace {

void Metrics::count_end(const state_db::ExecRow& row, const state_db::ExecOutcome& outcome) {
  const size_t category =
      outcome.category ? static_cast<size_t>(*outcome.category) : kCategories - 1;
  ended.at(static_cast<size_t>(outcome.state)).at(category).add();
  output_bytes.add(outcome.output_bytes);
  const int64_t took_ms = std::max<int64_t>(0, outcome.ended_wall_ms - row.started_wall_ms);
  exec_total.observe(static_cast<double>(took_ms) / 1000);
}

}  // namespace moorage::workspace
