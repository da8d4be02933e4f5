// GET /metrics: the layers' counters, the kernel's data about this process, and the last known
// state of the database and the disk. A scrape takes no lock of the store and walks no tree: look()
// does the expensive part on the upkeep lane every few seconds.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "daemon/http/router.h"
#include "workspace/context/context.h"
#include "workspace/upkeep/store_usage.h"

namespace moorage::workspace {
class Replica;
}

namespace moorage::daemon {

inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

class MetricsPage {
 public:
  MetricsPage(const Router& router, workspace::Context& context, workspace::StoreUsage& usage);
  ~MetricsPage();
  void tell_replica(const workspace::Replica& replica) { replica_ = &replica; }  // at the start
  void look();
  std::string text() const;

 private:
  struct Seen;
  const Router& router_;
  workspace::Context& context_;
  workspace::StoreUsage& usage_;
  const workspace::Replica* replica_ = nullptr;
  mutable std::mutex mutex_;
  std::shared_ptr<const Seen> seen_;
};

}  // namespace moorage::daemon
