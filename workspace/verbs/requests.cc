#include "workspace/verbs/requests.h"

#include "base/error.h"

namespace moorage::workspace {
namespace {

constexpr size_t kMaxArguments = 4096;
constexpr size_t kMaxArgumentBytes = 128 << 10;  // MAX_ARG_STRLEN of Linux

void check_no_nul(const std::string& what, const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    throw Error(Code::invalid_argument, what + " must not contain a NUL byte");
  }
  if (text.size() > kMaxArgumentBytes) {
    throw Error(Code::invalid_argument, what + " is longer than 128 KiB",
                "put long data into a file of the workspace, or on standard input");
  }
}

}  // namespace

void check_request(const CreateRequest& request) {
  if (!request.name.empty()) check_workspace_name(request.name);
  if (!request.branch.empty()) check_branch_name(request.branch);
  if (request.repo_url.empty() == !request.import.has_value()) {
    throw Error(Code::invalid_argument, "name exactly one repository for the workspace",
                "moorage create --repo URL, or --from DIR for a local checkout");
  }
  if (request.ref.size() > 1024 || has_control(request.ref) || request.ref.starts_with('-')) {
    throw Error(Code::invalid_argument, "'" + request.ref + "' is not a branch, tag or commit");
  }
  check_labels(request.labels);
  check_policy(request.policy);
}

void check_request(const ExecRequest& request) {
  if (request.argv.empty() || request.argv.front().empty()) {
    throw Error(Code::invalid_argument, "the command is empty", "moorage exec NAME -- COMMAND...");
  }
  if (request.argv.size() > kMaxArguments) {
    throw Error(Code::invalid_argument, "more than 4096 arguments");
  }
  for (const auto& argument : request.argv) check_no_nul("an argument", argument);
  for (const auto& [key, value] : request.environment) {
    check_no_nul("environment variable " + key, value);
    if (key.empty() || key.find_first_of(std::string("=\0", 2)) != std::string::npos) {
      throw Error(Code::invalid_argument, "'" + key + "' is not a valid environment variable name");
    }
  }
  check_no_nul("cwd", request.directory);
  if (!request.directory.starts_with('/')) {
    throw Error(Code::invalid_argument, "cwd '" + request.directory + "' is not absolute");
  }
  if (request.user != "user" && request.user != "root") {
    throw Error(Code::invalid_argument, "unknown user '" + request.user + "' in a sandbox",
                "use user or root");
  }
  if (request.terminal && (request.terminal->first == 0 || request.terminal->second == 0 ||
                           request.terminal->first > 10'000 || request.terminal->second > 10'000)) {
    throw Error(Code::invalid_argument, "a terminal must have 1 to 10,000 columns and rows");
  }
  if (request.timeout_ms < 0) throw Error(Code::invalid_argument, "timeout_ms is negative");
  if (request.idempotency_key.size() > 128) {
    throw Error(Code::invalid_argument, "an idempotency key may have at most 128 bytes");
  }
}

}  // namespace moorage::workspace
