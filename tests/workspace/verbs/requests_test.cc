#include "workspace/verbs/requests.h"

#include <catch2/catch.hpp>

#include "base/error.h"

namespace moorage::workspace {
namespace {

using state_db::WorkspaceState;

TEST_CASE("a workspace that is not ready is refused with a hint in every state") {
  state_db::WorkspaceRow row;
  row.id = base::WorkspaceId{7};
  row.name = "fix-login";
  row.state = WorkspaceState::ready;
  CHECK_NOTHROW(require_ready(row));
  for (const auto state :
       {WorkspaceState::creating, WorkspaceState::archiving, WorkspaceState::archived,
        WorkspaceState::unarchiving, WorkspaceState::deleting, WorkspaceState::deleted,
        WorkspaceState::failed}) {
    row.state = state;
    INFO(state_db::state_name(state));
    try {
      require_ready(row);
      FAIL("not refused");
    } catch (const base::Error& error) {
      CHECK(error.code() == base::Code::conflict);
      CHECK(error.message() == "fix-login is " + std::string(state_db::state_name(state)));
      CHECK_FALSE(error.hint().empty());
    }
  }
}

}  // namespace
}  // namespace moorage::workspace
