#include "cli/views/exec_result.h"

#include <algorithm>

#include "cli/client/context.h"
#include "cli/output/text.h"

namespace moorage::cli {

namespace {

// Reasons beyond the state. Categories of a failed start have an error text instead.
constexpr std::pair<std::string_view, const char*> kBecause[] = {
    {"stopped", " ended because its workspace was stopped"},
    {"out_of_memory", " failed: out of memory, one of its processes was killed"},
    {"pids_limit", " failed: its sandbox reached its limit of processes"},
    {"disk_full", " failed while the disk of the store was full; see: moorage du"},
    {"network_denied", " failed: it needs a network and its sandbox has none"}};

// The daemon's text in the record of a command that was ended by a stop.
constexpr std::string_view kWithSandbox = "ended with its sandbox: ";

// The daemon's text begins so in the record of a command that its sandbox's lifetime ended.
constexpr std::string_view kLifetime = "lifetime of ";

bool told_by_state(const Json& exec) {
  const std::string state = exec.text("state");
  return state == "timed_out" || state == "oom_killed" || state == "cancelled";
}

// "not found", "stopped by alice"; empty: the state says all.
std::string category_text(const Json& exec) {
  std::string category = exec.text("category");
  const std::string error = exec.text("error");
  if (category == "cancelled" && error.starts_with("cancelled by ")) return error;
  if (category == "stopped" && error.starts_with(kWithSandbox))
    return error.substr(kWithSandbox.size());
  if (category == "cancelled" && error.starts_with(kLifetime))
    return "cancelled (" + error.substr(0, error.find(" (")) + ")";
  std::replace(category.begin(), category.end(), '_', ' ');
  return category;
}

}  // namespace

bool has_ended(const Json& exec) { return exec.text("state") != "running"; }

int exit_code_of(const Json& exec) {
  const std::string state = exec.text("state");
  if (state == "exited") return static_cast<int>(exec.number("exit_code"));
  if (state == "signalled") return kSignalBase + static_cast<int>(exec.number("signal"));
  if (state == "timed_out") return kTimedOut;
  if (state == "oom_killed") return kOomKilled;
  if (state == "cancelled") return kCancelled;
  return kInterrupted;
}

void note_end(Context& context, const Json& exec, Reading reading, bool error_noted) {
  Json workspace;
  if (exec.text("state") == "oom_killed") {
    try {
      workspace =
          Json::parse(context.api().get(context.workspace_path(exec.text("workspace", "ws_0"))));
    } catch (const Error&) {
      // It is purged, or the daemon is gone: the notice does without.
    }
  }
  for (const std::string& notice : end_notices(exec, reading, workspace, error_noted))
    context.note(notice);
}

std::vector<std::string> end_notices(const Json& exec, Reading reading, const Json& workspace,
                                     bool error_noted) {
  const std::string id = exec.text("id", "the command"), state = exec.text("state");
  std::vector<std::string> notices;
  if (state == "timed_out") {
    const int64_t limit = exec.number("timeout_ms");
    notices.push_back(id + " timed out" + (limit > 0 ? " after " + format_took(limit) : "") +
                      "; it and its children were killed");
  }
  if (state == "oom_killed") {
    const auto bytes = static_cast<uint64_t>(workspace.number("limits.memory_bytes"));
    const std::string name = workspace.text("name", exec.text("workspace", "NAME"));
    notices.push_back(id + " exceeded its " +
                      (bytes > 0 ? format_size(bytes) + " of memory" : "memory limit") +
                      "; raise it: moorage set " + name + " --memory " +
                      (bytes > 0 ? format_size(2 * bytes) : "SIZE"));
  }
  const std::string error = exec.text("error");
  if (state == "cancelled" && error.empty()) notices.push_back(id + " was cancelled");
  const std::string category = exec.text("category");
  if (state == "interrupted" && category != "not_started" && category != "not_synced") {
    const std::string kept = reading == Reading::its_logs ? "" : "; its output: moorage logs " + id;
    notices.push_back(id + " was interrupted: its sandbox " +
                      (category == "stopped" ? "was stopped" : "ended") + " first" + kept);
  } else if (!told_by_state(exec) && (category != "network_denied" || error.empty())) {
    for (const auto& [word, text] : kBecause) {
      if (category == word) notices.push_back(id + text);
    }
  }
  if (state == "cancelled" && error.starts_with(kLifetime)) {
    notices.push_back(id + ": " + end_text(exec) + "; to change it: moorage set " +
                      exec.text("workspace", "NAME") + " --max-lifetime TIME");
  } else if (!error.empty() && !error_noted) {
    notices.push_back(id + ": " + error);
  }
  const int64_t omitted = exec.number("omitted_bytes");
  if (omitted > 0) {
    notices.push_back(id + " exceeded its output limit: " +
                      format_size(static_cast<uint64_t>(omitted)) + " of output was dropped");
  }
  return notices;
}

void CapturedOutput::add(bool is_error, std::string_view bytes) {
  constexpr size_t kMostBytes = 64 << 20;  // of both together
  const size_t room = kMostBytes - standard_output.size() - standard_error.size();
  truncated = truncated || bytes.size() > room;
  (is_error ? standard_error : standard_output).append(bytes.substr(0, room));
}

std::string json_with_output(const Json& exec, const CapturedOutput& output) {
  JsonObject added;
  added.add_bytes("stdout", output.standard_output).add_bytes("stderr", output.standard_error);
  if (output.truncated) added.add("output_truncated", true);
  std::string json = exec.dump();
  json.back() = ',';
  return json + added.str().substr(1);
}

std::string end_text(const Json& exec) {
  const std::string state = exec.text("state"), why = category_text(exec);
  if (state == "timed_out") return "timed out";
  if (state == "oom_killed") return "out of memory";
  if (state == "cancelled") return why.empty() ? state : why;
  std::string text = state;
  if (state == "exited") text += " " + exec.text("exit_code", "0");
  if (state == "signalled") text = "signal " + exec.text("signal");
  return why.empty() || exec.text("category") == "signal" ? text : text + " (" + why + ")";
}

}  // namespace moorage::cli
