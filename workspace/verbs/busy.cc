#include "workspace/verbs/busy.h"

#include <algorithm>

#include "base/error.h"
#include "state_db/store.h"
#include "workspace/context/waiters.h"

namespace moorage::workspace {
namespace {

constexpr size_t kNamed = 5;
constexpr size_t kMostOfOne = 60;  // bytes

}  // namespace

std::vector<state_db::ExecRow> commands_of(state_db::Store& store, base::WorkspaceId id) {
  auto running = state_db::ExecTable(store).running();
  std::erase_if(running, [&](const auto& exec) {
    return exec.request.workspace != id || !exec.request.hook.empty();
  });
  return running;
}

std::string name_commands(const std::vector<state_db::ExecRow>& execs) {
  std::string text;
  for (size_t n = 0; n < std::min(execs.size(), kNamed); ++n) {
    std::string command;
    for (const auto& word : execs[n].request.argv) command += (command.empty() ? "" : " ") + word;
    if (command.size() > kMostOfOne) command.replace(kMostOfOne, std::string::npos, "...");
    text += (n == 0 ? "" : ", ") + execs[n].id.str() + " (" + command + ")";
  }
  if (execs.size() > kNamed) text += " and " + std::to_string(execs.size() - kNamed) + " more";
  return text + (execs.size() == 1 ? " runs" : " run");
}

std::vector<base::ExecId> make_way(state_db::Store& store, const Caller& caller,
                                   const state_db::WorkspaceRow& row, const BusyRule& rule) {
  const auto running = commands_of(store, row.id);
  std::vector<base::ExecId> ids;
  for (const auto& exec : running) ids.push_back(exec.id);
  if (ids.empty() || rule.force) return ids;
  const std::string text = row.name + " is busy: " + name_commands(running);
  const auto until = caller.asked + rule.wait;
  if (Waiting::Clock::now() < until) throw Waiting(ids, text, until);
  throw base::Error(base::Code::conflict, text, "--wait waits for the end, --force ends it now");
}

}  // namespace moorage::workspace
