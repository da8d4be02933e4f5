#include "workspace/context/checks.h"

#include <algorithm>

#include "base/error.h"
#include "base/ids.h"

namespace moorage::workspace {
namespace {

constexpr size_t kMaxExternalIdBytes = 256;
constexpr size_t kMaxLabels = 64;

void check_name(const std::string& what, const std::string& name) {
  const bool good = !name.empty() && name.size() <= 63 && name.front() != '-' &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                    });
  if (!good) {
    throw Error(Code::invalid_argument, "not a valid " + what + " name: '" + name + "'",
                "use 1-63 of a-z, 0-9 and -, not starting with -");
  }
}

}  // namespace

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

void check_workspace_name(const std::string& name) { check_name("workspace", name); }

void check_snapshot_name(const std::string& name) {
  if (name.empty()) return;
  check_name("snapshot", name);
  if (base::SnapshotId::parse(name))
    throw Error(Code::invalid_argument, name + ": this form is reserved for ids; choose a name");
}

void check_external_id(const std::string& external_id) {
  if (external_id.size() <= kMaxExternalIdBytes) return;
  throw Error(Code::invalid_argument,
              "external_id has " + std::to_string(external_id.size()) + " bytes; the limit is 256");
}

void check_branch_name(const std::string& branch) {
  const auto bad = [&](const std::string& why) {
    throw Error(Code::invalid_argument, "'" + branch + "' is not a valid branch name: " + why);
  };
  if (branch.empty() || branch.size() > 200) bad("it must have 1 to 200 bytes");
  if (branch.front() == '-' || branch.front() == '/' || branch.back() == '/' ||
      branch.back() == '.') {
    bad("it must not start with - or /, nor end with / or .");
  }
  if (branch == "@" || branch == "HEAD") bad("it is reserved");
  for (const char* part : {"..", "//", "@{", "/.", ".lock/"}) {
    if (branch.find(part) != std::string::npos) bad(std::string("it contains ") + part);
  }
  if (branch.front() == '.' || branch.ends_with(".lock"))
    bad("a part starts with . or ends with .lock");
  if (has_control(branch) || branch.find_first_of(" ~^:?*[\\") != std::string::npos) {
    bad("it contains a space, a control character or one of ~^:?*[\\");
  }
}

void check_labels(const std::map<std::string, std::string>& labels) {
  if (labels.size() > kMaxLabels) {
    throw Error(Code::invalid_argument, "more than 64 labels");
  }
  for (const auto& [key, value] : labels) {
    const bool good_key = !key.empty() && key.size() <= 63 &&
                          std::all_of(key.begin(), key.end(), [](unsigned char c) {
                            return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
                          });
    if (!good_key) {
      throw Error(Code::invalid_argument,
                  "label '" + key + "': a key is 1-63 of A-Z a-z 0-9 - _ .");
    }
    if (value.size() > 255 || has_control(value)) {
      throw Error(Code::invalid_argument,
                  "label '" + key + "': a value is at most 255 bytes without control characters");
    }
  }
}

void require_ready(const state_db::WorkspaceRow& row) {
  using state_db::WorkspaceState;
  if (row.state == WorkspaceState::ready) return;
  std::string hint = "wait until that ends: moorage show " + row.name;
  if (row.state == WorkspaceState::failed) hint = "create another; moorage events shows why";
  if (row.state == WorkspaceState::deleted) hint = "moorage undelete " + row.id.str();
  if (row.state == WorkspaceState::archived) {
    hint = "moorage unarchive " + row.name + ", or start it, which unarchives it first";
  }
  throw Error(Code::conflict, row.name + " is " + std::string(state_db::state_name(row.state)),
              hint);
}

}  // namespace moorage::workspace
