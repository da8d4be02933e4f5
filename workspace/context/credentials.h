// Which credentials a workspace may use: its owner's, if it has the labels that they ask for.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/net/request_policy.h"
#include "state_db/tables/credentials.h"
#include "state_db/tables/workspace_row.h"

namespace moorage::state_db {
class Store;
}

namespace moorage::workspace {

std::vector<state_db::CredentialRow> credentials_of(state_db::Store& store,
                                                    const state_db::WorkspaceRow& workspace);
// Removes those that ask for labels which are not among these.
void keep_for_labels(std::vector<state_db::CredentialRow>& rows,
                     const std::map<std::string, std::string>& labels);
// Where each of them may be sent.
std::vector<base::CredentialScope> scopes_of(const std::vector<state_db::CredentialRow>& rows);
// Variables with placeholders, so that programs which insist on a key start.
std::map<std::string, std::string> placeholders_of(
    const std::vector<state_db::CredentialRow>& rows);

// Sealed secrets: a file each. A new secret is a new file, so a replacement that fails or is
// interrupted does not harm the former.
std::string sealed_name(uint32_t owner_uid, const std::string& name, const std::string& sealed);
std::string sealed_path(const std::string& store, const std::string& sealed_name);
// Removes those that no row names. Only while no verb runs.
void remove_unused_sealed(state_db::Store& store, const std::string& directory);

}  // namespace moorage::workspace
