#include "link/drivers/envd_stream.h"

#include <array>

#include "base/error.h"
#include "base/log.h"
#include "base/wire/text_stream.h"
#include "link/drivers/json_reader.h"

namespace moorage::link {
namespace {

namespace json = boost::json;

constexpr size_t kEnvelope = 5;  // flags, and the size in big endian
constexpr uint8_t kEndFlag = 2;
constexpr size_t kMaxMessage = 1 << 20;  // envd sends 32 KiB of output at once
constexpr size_t kMaxErrors = 1 << 10;
// envd is asked for a sign of life each 20 s.
constexpr const char* kKeepalive = "20";
constexpr std::chrono::seconds kSilence{65};
constexpr std::chrono::seconds kInput{60};  // until a program has read a piece
constexpr std::chrono::seconds kRelease{3};
constexpr const char* kRun = "run a program on the machine";

std::string envelope(const std::string& message) {
  std::string text(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8)
    text += static_cast<char>(message.size() >> shift & 0xff);
  return text + message;
}

Code code_of(std::string_view connect_code) {
  if (connect_code == "unauthenticated" || connect_code == "permission_denied")
    return Code::permission_denied;
  if (connect_code == "resource_exhausted") return Code::resource_exhausted;
  if (connect_code == "invalid_argument" || connect_code == "unimplemented")
    return Code::unsupported;
  return Code::unavailable;
}

std::string start_message(const EnvdProgram& program) {
  json::array arguments;
  for (size_t i = 1; i < program.argv.size(); ++i) arguments.emplace_back(program.argv[i]);
  return json::serialize(
      JsonObject{{"process", JsonObject{{"cmd", program.argv.at(0)}, {"args", arguments}}},
                 {"stdin", program.input}});
}

}  // namespace

EnvdStream::EnvdStream(RunApis envd, const EnvdProgram& program, Deadline deadline)
    : envd_(std::move(envd)) {
  HttpResponse refusal;
  try {
    refusal = start(program, deadline);
    while (refusal.status == 200 && pid_ == 0) await_start(deadline);
  } catch (const Error& error) {
    throw envd_.api->failure(kRun, error);
  }
  if (refusal.status != 200) throw envd_.api->failure(kRun, refusal);
}

HttpResponse EnvdStream::start(const EnvdProgram& program, Deadline deadline) {
  HttpRequest request = envd_.api->request_of({.what = kRun,
                                               .method = "POST",
                                               .target = "/process.Process/Start",
                                               .body = envelope(start_message(program)),
                                               .content_type = "application/connect+json"});
  request.headers.emplace_back("Connect-Protocol-Version", "1");
  request.headers.emplace_back("Keepalive-Ping-Interval", kKeepalive);
  reader_ = envd_.api->client().open_stream(request, deadline);
  HttpResponse response{reader_->status(), {}, {}};
  if (response.status == 200) return response;
  std::array<char, 4 << 10> body{};
  response.body.assign(body.data(), reader_->read(body, deadline));
  return response;
}

void EnvdStream::await_start(Deadline deadline) {
  std::string message;
  if (!next_message(message, deadline))
    throw Error(Code::unavailable, "the stream ended before the program began");
  std::string output;
  take_event(message, output);
  if (!output.empty() || end_) throw Error(Code::corrupted, "its stream has no start event");
}

bool EnvdStream::next_message(std::string& message, Deadline deadline) {
  for (;;) {
    uint32_t size = 0;
    for (size_t i = 1; i < kEnvelope && held_.size() >= kEnvelope; ++i)
      size = size << 8 | static_cast<uint8_t>(held_[i]);
    if (size > kMaxMessage) throw Error(Code::corrupted, "an event of its stream is too large");
    if (held_.size() >= kEnvelope + size) {
      const auto flags = static_cast<uint8_t>(held_[0]);
      message = held_.substr(kEnvelope, size);
      held_.erase(0, kEnvelope + size);
      if (flags == 0) return true;
      if (flags != kEndFlag) throw Error(Code::corrupted, "its stream is compressed or damaged");
      const json::value value = parse_answer(message.empty() ? "{}" : message);
      const JsonObject* error = object_field(object_in(value, "the end of the stream"), "error");
      if (error == nullptr) return false;
      throw Error(code_of(text_field(*error, "code")), printable(text_field(*error, "message")));
    }
    std::array<char, 64 << 10> piece;
    const size_t got = reader_->read(piece, deadline);
    if (got == 0) throw Error(Code::unavailable, "its stream was cut");
    held_.append(piece.data(), got);
  }
}

void EnvdStream::take_event(const std::string& message, std::string& output) {
  const json::value value = parse_answer(message);
  const JsonObject* event = object_field(object_in(value, "an event"), "event");
  if (event == nullptr) return;
  if (const JsonObject* start = object_field(*event, "start"))
    pid_ = number_field(*start, "pid", 0);
  if (const JsonObject* data = object_field(*event, "data")) {
    const auto* text = data->if_contains("stdout");
    if (text != nullptr && text->is_string() && !base::append_base64(text->get_string(), output)) {
      throw Error(Code::corrupted, "its output is invalid base64");
    }
    text = data->if_contains("stderr");
    if (text != nullptr && text->is_string()) base::append_base64(text->get_string(), errors_);
    if (errors_.size() > kMaxErrors) errors_.erase(0, errors_.size() - kMaxErrors);
  }
  if (const JsonObject* end = object_field(*event, "end")) {
    end_ = End{number_field(*end, "exitCode", 0), text_field(*end, "status")};
    if (!errors_.empty()) end_->said += ": " + printable(errors_);
  }
}

bool EnvdStream::receive_until_end(std::string& output, Deadline deadline) {
  output.clear();
  try {
    std::string message;
    while (output.empty()) {
      if (next_message(message, std::min(deadline, after(kSilence)))) {
        take_event(message, output);
        continue;
      }
      if (end_) return false;
      throw Error(Code::unavailable, "its stream ended, but not the program");
    }
    return true;
  } catch (const Error& error) {
    const bool known = error.code() != Code::io && error.code() != Code::deadline_exceeded;
    throw envd_.api->failure("follow a program on the machine",
                             known ? error : Error(Code::unavailable, error.message()));
  }
}

bool EnvdStream::receive(std::string& output) {
  if (receive_until_end(output, Deadline::max())) return true;
  if (end_->exit_code == 0 && end_->said.find("signal") == std::string::npos) return false;
  throw Error(end_->exit_code == kMissingProgram ? Code::not_found : Code::unavailable,
              "the program on the machine ended: " + std::to_string(end_->exit_code) + ": " +
                  printable(end_->said));
}

void EnvdStream::unary(const std::string& method, const std::string& what,
                       const std::string& more) {
  const std::string body = "{\"process\":{\"pid\":" + std::to_string(pid_) + "}" + more + "}";
  // Not to be repeated: without an answer nobody knows whether the program has the piece.
  envd_.api->call({.what = what,
                   .method = "POST",
                   .target = "/process.Process/" + method,
                   .body = body,
                   .may_repeat = false,
                   .attempt = kInput},
                  after(kInput));
}

void EnvdStream::send(std::string_view bytes) {
  unary("SendInput", "send to a program on the machine",
        ",\"input\":{\"stdin\":\"" + base::base64_text(bytes) + "\"}");
}

void EnvdStream::close_input() { unary("CloseStdin", "end the input of a program", ""); }

void EnvdStream::release() {
  if (end_) return;
  try {
    envd_.release->call({.what = "end a program on the machine",
                         .method = "POST",
                         .target = "/process.Process/SendSignal",
                         .body = "{\"process\":{\"pid\":" + std::to_string(pid_) +
                                 "},\"signal\":\"SIGNAL_SIGKILL\"}",
                         .accepted = {404, 502},
                         .attempt = kRelease},
                        after(kRelease));
  } catch (const std::exception& error) {
    // Often the machine is what cannot be reached. There the program waits for input.
    base::log(base::LogLevel::warning, "e2b.program_stays", {{"error", error.what()}});
  }
}

}  // namespace moorage::link
