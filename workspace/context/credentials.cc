#include "workspace/context/credentials.h"

#include <algorithm>

#include "state_db/store.h"

namespace moorage::workspace {

std::vector<state_db::CredentialRow> credentials_of(state_db::Store& store,
                                                    const state_db::WorkspaceRow& workspace) {
  auto rows = state_db::CredentialTable(store).of(workspace.owner_uid);
  std::erase_if(rows, [&workspace](const state_db::CredentialRow& row) {
    return !std::ranges::all_of(row.labels, [&workspace](const auto& label) {
      const auto found = workspace.labels.find(label.first);
      return found != workspace.labels.end() && found->second == label.second;
    });
  });
  return rows;
}

std::vector<base::CredentialScope> scopes_of(const std::vector<state_db::CredentialRow>& rows) {
  std::vector<base::CredentialScope> scopes;
  for (const state_db::CredentialRow& row : rows) {
    for (const std::string& url : row.urls) {
      base::CredentialScope scope = base::parse_scope(url);
      base::parse_form(row.form, scope);
      scope.credential = row.name;
      scope.methods = row.methods;
      scopes.push_back(std::move(scope));
    }
  }
  return scopes;
}

std::map<std::string, std::string> placeholders_of(
    const std::vector<state_db::CredentialRow>& rows) {
  std::map<std::string, std::string> variables;
  for (const state_db::CredentialRow& row : rows) {
    if (!row.variable.empty()) variables[row.variable] = base::placeholder_of(row.name);
  }
  return variables;
}

std::string sealed_path(const std::string& store, uint32_t owner_uid, const std::string& name) {
  return store + "/credentials/" + std::to_string(owner_uid) + "-" + name + ".cms";
}

}  // namespace moorage::workspace
