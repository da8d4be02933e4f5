#include "link/drivers/session_stream.h"

#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "link/drivers/json_reader.h"
#include "link/drivers/remote_shell.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr uint64_t kMaxLog = 1 << 30;
constexpr std::chrono::seconds kInput{60};  // until the machine has taken a piece
constexpr std::chrono::seconds kRelease{3};
constexpr std::chrono::seconds kAskWhy{5};
constexpr const char* kRun = "run a program on the machine";

std::string command_line(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) line += shell_quoted(word) + " ";
  return line + "--text";
}

}  // namespace

SessionStream::SessionStream(RunApis toolbox, const std::vector<std::string>& argv,
                             Deadline deadline)
    : toolbox_(std::move(toolbox)), session_("moorage-" + base::random_hex(12)) {
  try {
    start(argv, deadline);
    follow(deadline);
  } catch (...) {
    release();
    throw;
  }
}

std::string SessionStream::command_path() const {
  return "/process/session/" + session_ + "/command/" + command_;
}

void SessionStream::start(const std::vector<std::string>& argv, Deadline deadline) {
  // 409: an attempt before has made it.
  toolbox_.api->call({.what = kRun,
                      .method = "POST",
                      .target = "/process/session",
                      .body = json::serialize(JsonObject{{"sessionId", session_}}),
                      .accepted = {409}},
                     deadline);
  const JsonObject request{
      {"command", command_line(argv)}, {"runAsync", true}, {"suppressInputEcho", true}};
  const HttpResponse response =
      toolbox_.api->call({.what = kRun,
                          .method = "POST",
                          .target = "/process/session/" + session_ + "/exec",
                          .body = json::serialize(request),
                          .may_repeat = false},
                         deadline);
  const json::value value = parse_answer(response.body);
  command_ = id_field(object_in(value, "the command"), "cmdId");
}

void SessionStream::follow(Deadline deadline) {
  const HttpRequest request =
      toolbox_.api->request_of({.what = kRun, .target = command_path() + "/logs?follow=true"});
  HttpResponse refusal;
  try {
    log_ = WebSocket::open(toolbox_.api->client(), request, deadline, refusal);
  } catch (const Error& error) {
    throw toolbox_.api->failure(kRun, error);
  }
  if (!log_) throw toolbox_.api->failure(kRun, refusal);
}

bool SessionStream::receive(std::string& output) {
  output.clear();
  std::string text;
  try {
    while (output.empty()) {
      if (decoder_.ended()) return false;
      if (!log_->receive(text)) throw cut();
      log_bytes_ += text.size();
      if (log_bytes_ > kMaxLog)
        throw Error(Code::unavailable, "daytona: the log of the session is full: run it again");
      decoder_.decode(text, output);
    }
    return true;
  } catch (const Error& error) {
    if (error.code() == Code::unavailable || error.code() == Code::not_found) throw;
    const bool known = error.code() == Code::corrupted;
    // Words of the session's shell, perhaps.
    if (known && log_bytes_ == text.size()) {
      const Error why = cut();
      if (why.code() == Code::not_found) throw why;
    }
    throw toolbox_.api->failure("follow a program on the machine",
                                known ? error : Error(Code::unavailable, error.message()));
  }
}

// Why the log ended before the program's end line.
Error SessionStream::cut() const {
  try {
    const HttpResponse response =
        toolbox_.api->call({.what = "look up a command", .target = command_path()}, after(kAskWhy));
    const json::value value = parse_answer(response.body);
    const int64_t code = number_field(object_in(value, "the command"), "exitCode", -1);
    if (code >= 0) {
      return Error(code == kMissingProgram ? Code::not_found : Code::unavailable,
                   "the program on the machine ended: exit code " + std::to_string(code));
    }
  } catch (const Error& error) {
    return Error(Code::unavailable, "daytona: its stream was cut; then: " + error.message());
  }
  return Error(Code::unavailable, "daytona: its stream was cut");
}

void SessionStream::send_text(const std::string& text) {
  // Not to be repeated: without an answer nobody knows whether the program has the piece.
  toolbox_.api->call({.what = "send to a program on the machine",
                      .method = "POST",
                      .target = command_path() + "/input",
                      .body = json::serialize(JsonObject{{"data", text}}),
                      .may_repeat = false,
                      .attempt = kInput},
                     after(kInput));
}

void SessionStream::send(std::string_view bytes) { send_text(encoder_.encode(bytes)); }
void SessionStream::close_input() { send_text(encoder_.end()); }

void SessionStream::release() {
  try {
    toolbox_.release->call({.what = "remove a session",
                            .method = "DELETE",
                            .target = "/process/session/" + session_,
                            .accepted = {400, 404, 410},
                            .attempt = kRelease},
                           after(kRelease));
  } catch (const std::exception& error) {
    // The machine may be gone, with the session. Otherwise the program ends with its input.
    base::log(base::LogLevel::warning, "daytona.session_stays", {{"error", error.what()}});
  }
}

}  // namespace moorage::link
