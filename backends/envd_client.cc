#include "backends/envd_client.h"

#include <algorithm>
#include <boost/beast/core/detail/base64.hpp>
#include <boost/json.hpp>
#include <climits>

#include "backends/engine/unix_http.h"
#include "base/error.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr auto kQuickDeadline = milliseconds(10'000);
constexpr size_t kPieceBytes = 512 << 10;  // of input; the warden accepts at most 1 MiB
constexpr size_t kMaxProcesses = 4096;
constexpr size_t kMaxMessageBytes = 2000;
constexpr size_t kMaxReleaseBytes = 100;
constexpr size_t kMaxDepth = 32;
constexpr uint8_t kEndOfStream = 2;

HttpPeer warden_of(const Endpoint& endpoint) {
  return {endpoint.unix_socket, "the sandbox's warden"};
}

[[noreturn]] void broken(const std::string& what) {
  throw Error(Code::corrupted, "the sandbox's warden sent " + what);
}

json::object parse_object(std::string_view text) {
  json::parse_options options;
  options.max_depth = kMaxDepth;
  options.allow_invalid_utf8 = true;  // arguments of commands are bytes
  boost::system::error_code error;
  json::value value = json::parse(text, error, {}, options);
  if (error || !value.is_object()) broken("an invalid JSON object");
  return std::move(value.get_object());
}

const json::object* object_in(const json::object& outer, std::string_view name) {
  const json::value* value = outer.if_contains(name);
  return value ? value->if_object() : nullptr;
}

std::string string_in(const json::object& outer, std::string_view name) {
  const json::value* value = outer.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

uint64_t number_in(const json::object& outer, std::string_view name) {
  const json::value* value = outer.if_contains(name);
  if (value && value->is_int64() && value->get_int64() >= 0) return value->get_int64();
  std::string text = string_in(outer, name);
  if (text.empty() || text.size() > 19 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    broken("no number in \"" + std::string(name) + "\"");
  }
  return std::stoull(text);
}

// Maps Connect's codes (connectrpc.com/docs/protocol) to ours.
Code code_of(std::string_view name) {
  if (name == "failed_precondition") return Code::conflict;
  if (name == "unimplemented") return Code::unsupported;
  if (name == "unknown") return Code::unknown_outcome;
  if (name == "data_loss") return Code::corrupted;
  return base::code_from_name(name);
}

[[noreturn]] void throw_told(const json::object& error) {
  std::string message = string_in(error, "message").substr(0, kMaxMessageBytes);
  throw Error(code_of(string_in(error, "code")), message.empty() ? "the warden refused" : message);
}

json::object call(const Endpoint& endpoint, std::string_view path, const json::object& body,
                  milliseconds deadline) {
  const HttpRequest request{.path = std::string(path),
                            .headers = {{"Content-Type", "application/json"}},
                            .body = json::serialize(body)};
  HttpAnswer answer = exchange(warden_of(endpoint), request, deadline);
  json::object result = parse_object(answer.body);
  if (answer.status != 200) throw_told(result);
  return result;
}

json::object selector(const std::string& tag) { return {{"process", json::object{{"tag", tag}}}}; }

std::string envelope(std::string_view message) {
  const auto size = static_cast<uint32_t>(message.size());
  std::string result{'\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                     static_cast<char>(size >> 8), static_cast<char>(size)};
  return result.append(message);
}

// The messages of a finished stream, without the end-of-stream message, which is checked here.
std::vector<json::object> read_stream(std::string_view body) {
  std::vector<json::object> messages;
  while (!body.empty()) {
    if (body.size() < 5) broken("an incomplete envelope");
    uint32_t size = 0;
    for (int i = 1; i <= 4; ++i) size = size << 8 | static_cast<uint8_t>(body[i]);
    const auto flags = static_cast<uint8_t>(body[0]);
    if (size > body.size() - 5) broken("an incomplete message");
    json::object message = parse_object(body.substr(5, size));
    body.remove_prefix(5 + size);
    if (flags == 0) {
      messages.push_back(std::move(message));
      continue;
    }
    if (flags != kEndOfStream || !body.empty()) broken("an invalid end of stream");
    if (const json::object* error = object_in(message, "error")) throw_told(*error);
    return messages;
  }
  broken("a stream without an end");
}

json::object size_object(const TerminalSize& size) {
  return {{"size", json::object{{"cols", size.columns}, {"rows", size.rows}}}};
}

json::object start_body(const StartRequest& start) {
  json::object environment;
  for (const auto& [name, value] : start.environment) environment[name] = value;
  json::object process{{"cmd", start.argv.at(0)},
                       {"args", json::array(start.argv.begin() + 1, start.argv.end())},
                       {"envs", std::move(environment)},
                       {"cwd", start.directory}};
  json::object body{{"process", std::move(process)}, {"stdin", start.input}};
  if (!start.tag.empty()) body["tag"] = start.tag;
  if (start.merged) body["merge_output"] = true;
  if (start.terminal) body["pty"] = size_object(*start.terminal);
  return body;
}

HttpRequest start_request(const StartRequest& start) {
  HttpRequest request;
  request.path = "/process.Process/Start";
  request.headers = {{"Content-Type", "application/connect+json"},
                     {"Connect-Protocol-Version", "1"},
                     {"Moorage-Journal", "1"},
                     {"Moorage-Kill-Fd", start.kill_fd >= 0 ? "1" : "0"},
                     {"Moorage-Output-Limit", std::to_string(start.output_limit_bytes)},
                     {"Moorage-Journal-Room", std::to_string(start.journal_room_bytes)},
                     {"Moorage-User", start.user},
                     {"Moorage-Tag", start.tag}};
  if (start.timeout_ms > 0) {
    request.headers.emplace_back("Connect-Timeout-Ms", std::to_string(start.timeout_ms));
  }
  request.fds.push_back(start.journal_fd);
  if (start.kill_fd >= 0) request.fds.push_back(start.kill_fd);
  request.fds.insert(request.fds.end(), start.join_fds.begin(), start.join_fds.end());
  request.body = envelope(json::serialize(start_body(start)));
  return request;
}

std::string encode_base64(std::string_view bytes) {
  namespace base64 = boost::beast::detail::base64;
  std::string text(base64::encoded_size(bytes.size()), '\0');
  text.resize(base64::encode(text.data(), bytes.data(), bytes.size()));
  return text;
}

}  // namespace

uint32_t EnvdClient::start(const StartRequest& request, milliseconds deadline) {
  if (request.argv.empty()) throw Error(Code::invalid_argument, "no command given");
  if (request.journal_fd < 0) throw Error(Code::invalid_argument, "an exec needs a journal");
  HttpAnswer answer = exchange(warden_of(endpoint_), start_request(request), deadline);
  if (answer.status != 200) throw_told(parse_object(answer.body));
  for (const json::object& message : read_stream(answer.body)) {
    const json::object* event = object_in(message, "event");
    const json::object* started = event ? object_in(*event, "start") : nullptr;
    if (started) return static_cast<uint32_t>(number_in(*started, "pid"));
  }
  broken("a stream without a start event");
}

InputTaken EnvdClient::send_input(const std::string& tag, uint64_t offset, std::string_view bytes,
                                  milliseconds deadline) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  InputTaken taken{offset};
  do {
    std::string_view piece = bytes.substr(0, kPieceBytes);
    json::object body = selector(tag);
    body["offset"] = std::to_string(offset);
    body["input"] = json::object{{"stdin", encode_base64(piece)}};
    const auto left =
        std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
    const json::object answer = call(endpoint_, "/process.Process/SendInput", body, left);
    taken.accepted = number_in(answer, "accepted");
    if (answer.contains("read")) taken.read = number_in(answer, "read");
    offset += piece.size();
    bytes.remove_prefix(piece.size());
  } while (!bytes.empty());
  return taken;
}

void EnvdClient::close_input(const std::string& tag) {
  call(endpoint_, "/process.Process/CloseStdin", selector(tag), kQuickDeadline);
}

void EnvdClient::send_signal(const std::string& tag, int signal) {
  json::object body = selector(tag);
  body["signal"] = signal;
  call(endpoint_, "/process.Process/SendSignal", body, kQuickDeadline);
}

void EnvdClient::kill_tree(const std::string& tag) {
  json::object body = selector(tag);
  body["signal"] = "SIGNAL_SIGKILL";
  body["tree"] = true;
  call(endpoint_, "/process.Process/SendSignal", body, kQuickDeadline);
}

void EnvdClient::resize(const std::string& tag, const TerminalSize& size) {
  json::object body = selector(tag);
  body["pty"] = size_object(size);
  call(endpoint_, "/process.Process/Update", body, kQuickDeadline);
}

std::vector<ProcessInfo> EnvdClient::list(milliseconds deadline) {
  json::object answer = call(endpoint_, "/process.Process/List", {}, deadline);
  const json::value* processes = answer.if_contains("processes");
  if (!processes) return {};  // proto3 JSON omits empty lists
  if (!processes->is_array() || processes->get_array().size() > kMaxProcesses)
    broken("an invalid list");
  std::vector<ProcessInfo> result;
  for (const json::value& value : processes->get_array()) {
    if (!value.is_object()) broken("a list of non-objects");
    const json::object& process = value.get_object();
    result.push_back({string_in(process, "tag"), static_cast<uint32_t>(number_in(process, "pid"))});
  }
  return result;
}

bool EnvdClient::healthy(milliseconds deadline) {
  try {
    return exchange(warden_of(endpoint_), {.method = "GET", .path = "/health"}, deadline).status ==
           204;
  } catch (const Error&) {
    return false;  // for any reason
  }
}

std::optional<WardenInfo> EnvdClient::introduce(milliseconds deadline) {
  HttpAnswer answer;
  try {
    answer =
        exchange(warden_of(endpoint_), {.method = "GET", .path = "/moorage/protocol"}, deadline);
  } catch (const Error&) {
    return std::nullopt;  // for any reason
  }
  if (answer.status == 404) return WardenInfo{};
  if (answer.status != 200) return std::nullopt;
  const json::object fields = parse_object(answer.body);
  const auto number = [&fields](std::string_view name) {
    return static_cast<int>(std::min<uint64_t>(number_in(fields, name), INT_MAX));
  };
  return WardenInfo{{number("oldest"), number("newest")},
                    string_in(fields, "release").substr(0, kMaxReleaseBytes)};
}

bool EnvdClient::set_network_line(int line, milliseconds deadline) {
  HttpRequest request;
  request.path = "/moorage/network";
  request.fds.push_back(line);
  const HttpAnswer answer = exchange(warden_of(endpoint_), request, deadline);
  if (answer.status == 404) return false;
  if (answer.status != 200)
    throw Error(Code::unavailable, "the sandbox's warden refused the line: " + answer.body);
  return true;
}

void EnvdClient::shut_down(milliseconds grace) {
  try {
    call(endpoint_, "/moorage/shutdown", {{"grace_ms", grace.count()}}, grace + kQuickDeadline);
  } catch (const Error& error) {
    // It may have ended before it could answer, which is the goal.
    if (error.code() != Code::unknown_outcome && error.code() != Code::unavailable) throw;
  }
}

}  // namespace moorage::backends
