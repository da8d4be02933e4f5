#include "workspace/exec/ask_about.h"

#include <set>
#include <string>

#include "backends/envd_client.h"
#include "backends/remote/link_client.h"

namespace moorage::workspace {
namespace {

using state_db::ExecSeen;

// A new keeper of the link knows no journals until it gets them (relink.cc), which comes with
// another process 1.
bool is_the_same(LiveSandboxes& live, const LiveSandbox& running) {
  const auto now = live.without_mounts(running.sandbox);
  return now && now->init == running.init;
}

}  // namespace

std::vector<ExecSeen> ask_about(LiveSandboxes& live, const LiveSandbox& running,
                                const std::vector<base::ExecId>& execs,
                                std::chrono::milliseconds patience) {
  std::set<std::string> known;
  for (const auto& process : backends::EnvdClient(running.endpoint).list(patience))
    known.insert(process.tag);
  std::vector<ExecSeen> seen;
  for (const base::ExecId exec : execs) {
    const std::string tag = exec.str();
    if (known.contains(tag))
      seen.push_back(ExecSeen::known);
    else if (running.remote && (backends::LinkClient(running.endpoint).follows(tag, patience) ||
                                !is_the_same(live, running)))
      seen.push_back(ExecSeen::silent);
    else
      seen.push_back(ExecSeen::unknown);
  }
  return seen;
}

}  // namespace moorage::workspace
