#include "workspace/verbs/requests.h"

#include "base/error.h"
#include "base/size_text.h"

namespace moorage::workspace {
namespace {

// Linux counts the NUL of each string of a command, and a pointer to it (fs/exec.c).
constexpr size_t kMaxStringBytes = 128 << 10;  // MAX_ARG_STRLEN
constexpr size_t kMaxCommandBytes = 2 << 20;   // a quarter of the usual limit of the stack
constexpr size_t kPointerBytes = 8;
constexpr const char* kElsewhere =
    "put long data into a file of the workspace, or on standard input";

void check_no_nul(const std::string& what, const std::string& text) {
  if (text.find('\0') != std::string::npos) {
    throw Error(Code::invalid_argument, what + " must not contain a NUL byte");
  }
  if (text.size() >= kMaxStringBytes) {
    throw Error(Code::invalid_argument,
                what + " has " + base::size_text(text.size()) +
                    ", and Linux allows 128 KiB (MAX_ARG_STRLEN)",
                kElsewhere);
  }
}

void check_identity(const std::string& what, const std::string& text) {
  if (base::is_git_identity(text)) return;
  throw Error(Code::invalid_argument,
              what + " must be text of at most 200 bytes without control characters, < and >",
              "leave git_author out for the identity that this host knows");
}

void check_command_size(const ExecRequest& request) {
  size_t bytes = 0;
  const auto add = [&bytes](size_t text) { bytes += text + 1 + kPointerBytes; };
  for (const auto& argument : request.argv) add(argument.size());
  for (const auto& [key, value] : request.environment) add(key.size() + 1 + value.size());
  if (bytes <= kMaxCommandBytes) return;
  throw Error(Code::invalid_argument,
              std::to_string(request.argv.size()) + " arguments and " +
                  std::to_string(request.environment.size()) + " variables take " +
                  std::to_string(bytes) +
                  " bytes, and Linux allows 2 MiB (ARG_MAX: a quarter of the stack's limit)",
              kElsewhere);
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
  for (size_t n = 0; n < request.argv.size(); ++n)
    check_no_nul("argv[" + std::to_string(n) + "]", request.argv[n]);
  for (const auto& [key, value] : request.environment) {
    check_no_nul("environment variable " + key, key + "=" + value);
    if (key.empty() || key.find_first_of(std::string("=\0", 2)) != std::string::npos) {
      throw Error(Code::invalid_argument, "'" + key + "' is not a valid environment variable name");
    }
  }
  check_command_size(request);
  if (request.author) {
    check_identity("git_author.name", request.author->name);
    check_identity("git_author.email", request.author->email);
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
  if (request.terminal && request.merged) {
    throw Error(Code::invalid_argument, "merge_output does not go with tty",
                "leave it out: a terminal has one stream of output");
  }
  if (request.timeout_ms < 0) throw Error(Code::invalid_argument, "timeout_ms is negative");
  if (request.idempotency_key.size() > 128) {
    throw Error(Code::invalid_argument, "an idempotency key may have at most 128 bytes");
  }
}

}  // namespace moorage::workspace
