#include "workspace/sandbox/spending.h"

#include "backends/registry.h"
#include "base/error.h"
#include "base/os/accounts.h"
#include "state_db/store.h"
#include "state_db/tables/sandboxes.h"

namespace moorage::workspace {
namespace {

constexpr int64_t kHour_ms = 3'600'000;

}  // namespace

int64_t spent_ms(Context& context, uint32_t owner_uid) {
  std::vector<std::string> remote;
  for (const std::string& name : context.backends.names()) {
    if (context.backends.get(name).known_capabilities().remote) remote.push_back(name);
  }
  const int64_t since = context.store.clock().wall_ms() - 24 * kHour_ms;
  return state_db::SandboxTable(context.store).lived_ms(owner_uid, remote, since);
}

void require_hours(Context& context, uint32_t owner_uid) {
  const uint32_t hours = context.options.remote_hours_a_day;
  if (hours == 0 || spent_ms(context, owner_uid) < hours * kHour_ms) return;
  throw Error(Code::resource_exhausted,
              base::user_name(owner_uid) + " has used the " + std::to_string(hours) +
                  (hours == 1 ? " hour" : " hours") +
                  " of sandboxes on other machines that are allowed in 24 hours",
              "wait, use a backend of this host (moorage move NAME --backend lxc), or raise "
              "remote.user_hours_a_day in the configuration");
}

}  // namespace moorage::workspace
