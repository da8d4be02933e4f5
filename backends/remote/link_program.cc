#include "backends/remote/link_program.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>

#include "base/error.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/os/process.h"
#include "base/parts.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;

constexpr size_t kMaxOutput = 4 << 20;
constexpr size_t kMaxListed = 10'000;
constexpr size_t kMaxTextBytes = 1000;
constexpr std::string_view kHint = "hint: ";

std::string shown(std::string_view text) {
  return base::escape_for_message(text.substr(0, kMaxTextBytes));
}

// The program prints its error on one line, and perhaps a hint on the next.
[[noreturn]] void throw_said(const std::string& command, const base::ProcessResult& result) {
  std::string message;
  std::string hint;
  for (const std::string_view line : base::split(result.error, '\n')) {
    if (line.starts_with(kHint))
      hint = shown(line.substr(kHint.size()));
    else if (!line.empty())
      message = shown(line);
  }
  if (message.empty()) {
    message = "moorage-link " + command + " ended with " +
              (result.signal ? "signal " + std::to_string(result.signal)
                             : "exit code " + std::to_string(result.exit_code));
  }
  throw Error(Code::unavailable, message, hint);
}

std::string name_in(std::string_view line) {
  json::parse_options limits;
  limits.max_depth = 4;
  boost::system::error_code error;
  const json::value value = json::parse(line, error, {}, limits);
  const json::object* object = error ? nullptr : value.if_object();
  const json::value* name = object ? object->if_contains("sandbox") : nullptr;
  const json::string* text = name ? name->if_string() : nullptr;
  return text ? std::string(*text) : std::string();
}

}  // namespace

std::map<std::string, std::string> ssh_environment() {
  std::map<std::string, std::string> environment;
  for (const char* name : {"HOME", "SSH_AUTH_SOCK"}) {
    if (const char* value = getenv(name)) environment[name] = value;
  }
  return environment;
}

std::string run_link(const std::string& program, const std::vector<std::string>& command,
                     const base::LinkConfig& config, std::chrono::milliseconds deadline) {
  std::vector<std::string> argv{program};
  argv.insert(argv.end(), command.begin(), command.end());
  argv.insert(argv.end(), {"--config", "/dev/stdin"});
  base::ProcessOptions options;
  options.deadline = deadline;
  options.max_output_bytes = kMaxOutput;
  options.environment = ssh_environment();
  options.environment["PATH"] = "/usr/local/bin:/usr/bin:/bin";
  options.input = base::link_config_text(config);
  try {
    const auto result = base::run_process(argv, options);
    if (!result.ok()) throw_said(command.front(), result);
    return result.output;
  } catch (const Error& error) {
    if (error.code() != Code::deadline_exceeded) throw;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(deadline).count();
    throw Error(Code::deadline_exceeded,
                config.place + " did not answer within " + std::to_string(seconds) + " s");
  }
}

std::vector<std::string> parse_listed(const std::string& output, const std::string& prefix) {
  std::vector<std::string> names;
  for (const std::string_view line : base::split(output, '\n')) {
    std::string name = name_in(line);
    if (!name.starts_with(prefix) || !base::SandboxId::parse(name.substr(prefix.size()))) continue;
    if (names.size() == kMaxListed)
      throw Error(Code::corrupted, "the other machine lists more than 10000 sandboxes");
    names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

bool parse_found(const std::string& output) {
  json::parse_options limits;
  limits.max_depth = 4;
  boost::system::error_code error;
  const json::value value = json::parse(output, error, {}, limits);
  const json::object* object = error ? nullptr : value.if_object();
  const json::value* found = object ? object->if_contains("found") : nullptr;
  if (!found || !found->is_bool())
    throw Error(Code::corrupted, "moorage-link said " + shown(output));
  return found->get_bool();
}

}  // namespace moorage::backends
