#include "cli/exec_result.h"

#include "cli/text.h"

namespace moorage::cli {

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

std::vector<std::string> end_notices(const Json& exec, Reading reading) {
  const std::string id = exec.text("id", "the command"), state = exec.text("state");
  std::vector<std::string> notices;
  if (state == "timed_out") {
    const int64_t limit = exec.number("timeout_ms");
    notices.push_back(id + " timed out" + (limit > 0 ? " after " + format_took(limit) : "") +
                      "; all that it started was killed");
  }
  if (state == "oom_killed") notices.push_back(id + " was killed: it ran out of memory");
  if (state == "cancelled") notices.push_back(id + " was cancelled");
  if (state == "interrupted") {
    const std::string kept =
        reading == Reading::its_logs ? "" : "; what it wrote is kept: moorage logs " + id;
    notices.push_back(id + " was interrupted: its sandbox ended before it did" + kept);
  }
  const std::string error = exec.text("error");
  if (!error.empty()) notices.push_back(id + ": " + error);
  const int64_t omitted = exec.number("omitted_bytes");
  if (omitted > 0) {
    notices.push_back(id + " wrote more than its limit: the last " +
                      format_size(static_cast<uint64_t>(omitted)) + " of output were not kept");
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
  const std::string state = exec.text("state");
  if (state == "exited") return state + " " + exec.text("exit_code", "0");
  if (state == "signalled") return state + " " + exec.text("signal");
  return state;
}

}  // namespace moorage::cli
