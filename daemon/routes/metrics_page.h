// GET /metrics: the layers' counters, the kernel's data about this process, and the last known
// state of the database and the disk. A scrape takes no lock of the store and walks no tree: look()
// does the expensive part on the upkeep lane every few seconds.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "daemon/http/router.h"

namespace moorage::workspace {
struct Services;
}

namespace moorage::daemon {

inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

class MetricsPage {
 public:
  MetricsPage(const Router& router, workspace::Services& services);
  ~MetricsPage();
  void look();
  std::string text() const;

 private:
  struct Seen;
  const Router& router_;
  workspace::Services& services_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Seen> seen_;
};

}  // namespace moorage::daemon
