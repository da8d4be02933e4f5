// Checks of the names that a request or an imported archive gives (they throw invalid_argument),
// and of a workspace's state before every effect on it.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "state_db/tables/workspaces.h"

namespace moorage::workspace {

bool has_control(std::string_view text);  // a control character

// 1-63 of [a-z0-9-], not starting with a dash; refuses anything else and never corrects it.
void check_workspace_name(const std::string& name);
void check_snapshot_name(const std::string& name);  // may be empty
void check_external_id(const std::string& external_id);
// Like git check-ref-format --branch.
void check_branch_name(const std::string& branch);
void check_labels(const std::map<std::string, std::string>& labels);

// Throws conflict for a workspace in another state, with a hint about the next step.
void require_ready(const state_db::WorkspaceRow& row);

}  // namespace moorage::workspace
