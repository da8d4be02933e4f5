// `report`: the record of one workspace for a reviewer who does not know Moorage, fetched part by
// part and written from front to back. An unavailable part is replaced by the reason.
#pragma once

#include <cstddef>
#include <string>

#include "cli/report/commands.h"
#include "cli/report/patch.h"
#include "cli/report/writer.h"

namespace moorage::cli {

class Context;

struct ReportLimits {
  size_t commands = 200;
  OutputLimits outputs;
  size_t lineage_lines = 200;
  size_t files = 300;
  size_t commits = 100;
  PatchLimits patch;
};

// The limits of --full: a browser must be able to show the page.
inline ReportLimits full_report() {
  return {10'000, {500, 20, 64 << 10}, 5'000, 20'000, 2'000, {16 << 20, 256 << 20}};
}

void write_report(Context& context, ReportWriter& writer, const std::string& workspace,
                  const ReportLimits& limits);

}  // namespace moorage::cli
