#include "workspace/context/credentials.h"

#include <algorithm>
#include <set>

#include "base/digest.h"
#include "base/os/files.h"
#include "state_db/store.h"

namespace moorage::workspace {

std::vector<state_db::CredentialRow> credentials_of(state_db::Store& store,
                                                    const state_db::WorkspaceRow& workspace) {
  auto rows = state_db::CredentialTable(store).of(workspace.owner_uid);
  keep_for_labels(rows, workspace.labels);
  return rows;
}

void keep_for_labels(std::vector<state_db::CredentialRow>& rows,
                     const std::map<std::string, std::string>& labels) {
  std::erase_if(rows, [&labels](const state_db::CredentialRow& row) {
    return !std::ranges::all_of(row.labels, [&labels](const auto& label) {
      const auto found = labels.find(label.first);
      return found != labels.end() && found->second == label.second;
    });
  });
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

std::string sealed_name(uint32_t owner_uid, const std::string& name, const std::string& sealed) {
  return std::to_string(owner_uid) + "-" + name + "-" + base::sha256_hex(sealed).substr(0, 16) +
         ".cms";
}

std::string sealed_path(const std::string& store, const std::string& sealed_name) {
  return store + "/credentials/" + sealed_name;
}

void remove_unused_sealed(state_db::Store& store, const std::string& directory) {
  std::set<std::string> used;
  for (const auto& row : state_db::CredentialTable(store).list()) {
    if (row.source == state_db::SecretSource::sealed) used.insert(row.place);
  }
  for (const std::string& name : base::list_directory_if_exists(directory + "/credentials")) {
    if (!used.contains(name)) base::remove_tree(sealed_path(directory, name));
  }
}

}  // namespace moorage::workspace
