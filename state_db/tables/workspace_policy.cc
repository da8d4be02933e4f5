#include "state_db/tables/workspace_policy.h"

#include "base/size_text.h"

namespace moorage::state_db {

std::string policy_text(bool value) { return value ? "true" : "false"; }
std::string policy_text(double value) { return base::number_text(value); }
std::string policy_text(const std::string& value) { return "'" + value + "'"; }

std::string policy_text(const std::vector<std::string>& words) {
  std::string text = "[";
  for (const auto& word : words) text += (text.size() > 1 ? " " : "") + policy_text(word);
  return text + "]";
}

std::string policy_difference(const WorkspacePolicy& from, const WorkspacePolicy& to) {
  std::string text;
  each_policy_field(
      [&](const char* name, const auto& old_value, const auto& new_value) {
        if (old_value == new_value) return;
        text += (text.empty() ? "" : ", ") + std::string(name) + " " + policy_text(old_value) +
                " -> " + policy_text(new_value);
      },
      from, to);
  return text;
}

}  // namespace moorage::state_db
