#include "backends/engine/engine_client.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "backends/engine/unix_http.h"
#include "base/error.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;

constexpr const char* kVersion = "/v1.40";
constexpr size_t kMaxAnswerBytes = 64 << 20;  // for a list of all containers
constexpr size_t kMaxMessageBytes = 1000;

[[noreturn]] void broken(const std::string& what) {
  throw Error(Code::corrupted, "the container engine sent " + what);
}

json::value parse(const std::string& text) {
  boost::system::error_code error;
  json::value value = json::parse(text, error);
  if (error) broken("invalid JSON");
  return value;
}

// Empty unless it is an array.
const json::array& array_in(const json::object& object, std::string_view key) {
  static const json::array none;
  const json::value* value = object.if_contains(key);
  return value && value->is_array() ? value->get_array() : none;
}

std::vector<std::string> texts_in(const json::object& object, std::string_view key) {
  std::vector<std::string> texts;
  for (const json::value& value : array_in(object, key)) {
    if (value.is_string()) texts.emplace_back(value.get_string());
  }
  return texts;
}

std::string text_in(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value && value->is_string() ? std::string(value->get_string()) : std::string();
}

const json::object& object_of(const json::value& value) {
  if (!value.is_object()) broken("a value that is not an object");
  return value.get_object();
}

// The engine's own explanation of a refusal.
std::string told(const std::string& body) {
  boost::system::error_code error;
  const json::value value = json::parse(body, error);
  std::string message;
  if (!error && value.is_object()) message = text_in(value.get_object(), "message");
  if (message.empty()) message = body;
  return message.substr(0, kMaxMessageBytes);
}

Code code_of(int status) {
  switch (status) {
    case 400:
      return Code::unsupported;
    case 404:
      return Code::not_found;
    case 409:
      return Code::already_exists;
    default:
      return Code::unavailable;
  }
}

std::string escaped(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    if (plain) {
      result += c;
    } else {
      result += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result;
}

// The path of an image's description. An engine resolves "." and ".." between slashes to another
// endpoint, even when escaped; no image name contains them.
std::string description_path(const std::string& image) {
  const std::string framed = "/" + image + "/";
  for (const char* step : {"//", "/./", "/../"}) {
    if (framed.find(step) != std::string::npos)
      throw Error(Code::not_found, "invalid image name: '" + image + "'");
  }
  return "/images/" + escaped(image) + "/json";
}

// An engine with userns-remap keeps its state below DATA/UID.GID and reports it nowhere else
// (docs.docker.com/engine/security/userns-remap).
std::optional<uint32_t> remapped_root(const std::string& directory) {
  const std::string last = directory.substr(directory.rfind('/') + 1);
  uint32_t uid = 0;
  uint32_t gid = 0;
  const char* end = last.data() + last.size();
  const auto [dot, uid_error] = std::from_chars(last.data(), end, uid);
  if (uid_error != std::errc() || dot == end || *dot != '.') return std::nullopt;
  const auto [rest, gid_error] = std::from_chars(dot + 1, end, gid);
  if (gid_error != std::errc() || rest != end || uid != gid) return std::nullopt;
  return uid;
}

bool has_option(const json::object& info, std::string_view name) {
  const std::string wanted = "name=" + std::string(name);
  const auto options = texts_in(info, "SecurityOptions");
  return std::any_of(options.begin(), options.end(),
                     [&](const std::string& option) { return option.starts_with(wanted); });
}

}  // namespace

std::string EngineClient::call(const std::string& method, const std::string& path,
                               const std::string& body, Deadline deadline) const {
  const bool is_tar = path.starts_with("/images/create");
  const HttpRequest request{
      .method = method,
      .path = kVersion + path,
      .headers = {{"Content-Type", is_tar ? "application/x-tar" : "application/json"}},
      .body = body};
  HttpAnswer answer;
  try {
    answer = exchange({socket_, "the container engine", kMaxAnswerBytes}, request, deadline);
  } catch (const Error& error) {
    if (error.code() != Code::unavailable && error.code() != Code::not_found) throw;
    throw Error(Code::unavailable, error.message(),
                "make sure it runs with its socket at " + socket_ + ": systemctl start docker");
  }
  if (answer.status < 300 || answer.status == 304) return answer.body;
  const std::string message = told(answer.body);
  // Podman uses another status for this.
  const bool taken = message.find("is already in use by") != std::string::npos;
  throw Error(taken ? Code::already_exists : code_of(answer.status),
              "the container engine: " + message);
}

void EngineClient::ping(Deadline deadline) const { call("GET", "/_ping", "", deadline); }

EngineInfo EngineClient::info(Deadline deadline) const {
  const json::value value = parse(call("GET", "/info", "", deadline));
  const json::object& object = object_of(value);
  EngineInfo info;
  info.default_runtime = text_in(object, "DefaultRuntime");
  info.seccomp = has_option(object, "seccomp");
  info.is_podman = is_podman(deadline);
  const json::value* runtimes = object.if_contains("Runtimes");
  // Podman ignores a container's "Runtime" and lists runtimes that may not exist.
  if (runtimes && runtimes->is_object() && !info.is_podman) {
    for (const auto& [name, runtime] : runtimes->get_object()) {
      info.runtimes[std::string(name)] =
          runtime.is_object() ? text_in(runtime.get_object(), "path") : "";
    }
  }
  if (has_option(object, "userns")) {
    info.first_host_id = remapped_root(text_in(object, "DockerRootDir"));
    if (!info.first_host_id) {
      throw Error(Code::unsupported,
                  "the container engine remaps users but does not report the ids",
                  "give --userns-remap one range, the same for uids and gids");
    }
  }
  return info;
}

bool EngineClient::is_podman(Deadline deadline) const {
  const json::value value = parse(call("GET", "/version", "", deadline));
  for (const json::value& component : array_in(object_of(value), "Components")) {
    if (text_in(object_of(component), "Name").starts_with("Podman")) return true;
  }
  return false;
}

bool EngineClient::has_image(const std::string& image, Deadline deadline) const {
  try {
    call("GET", description_path(image), "", deadline);
    return true;
  } catch (const Error& error) {
    if (error.code() == Code::not_found) return false;
    throw;
  }
}

std::optional<ImageIdentity> EngineClient::find_image(const std::string& image,
                                                      Deadline deadline) const {
  if (!has_image(image, deadline)) return std::nullopt;
  const json::value value = parse(call("GET", description_path(image), "", deadline));
  const json::value* id = object_of(value).if_contains("Id");
  if (!id || !id->is_string()) broken("an image without an id");
  // For a locally built image an engine reports no source, or one without a registry.
  const auto sources = texts_in(object_of(value), "RepoDigests");
  ImageIdentity found{std::string(id->get_string()), sources.empty() ? "" : sources.front()};
  if (!found.id.starts_with("sha256:")) found.id.insert(0, "sha256:");  // Podman
  return found;
}

std::vector<std::string> EngineClient::image_volumes(const std::string& image,
                                                     Deadline deadline) const {
  const json::value value = parse(call("GET", description_path(image), "", deadline));
  const json::value* config = object_of(value).if_contains("Config");
  const json::value* volumes =
      config && config->is_object() ? config->get_object().if_contains("Volumes") : nullptr;
  std::vector<std::string> places;
  if (!volumes || !volumes->is_object()) return places;
  for (const auto& [place, nothing] : volumes->get_object()) places.emplace_back(place);
  return places;
}

std::vector<std::string> EngineClient::images(Deadline deadline) const {
  const json::value value = parse(call("GET", "/images/json", "", deadline));
  std::vector<std::string> names;
  if (!value.is_array()) broken("an invalid list of images");
  for (const json::value& image : value.get_array()) {
    for (std::string& tag : texts_in(object_of(image), "RepoTags")) {
      if (tag != "<none>:<none>") names.push_back(std::move(tag));
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

void EngineClient::import_image(const Import& image, Deadline deadline) const {
  // The tag goes with the name: Podman ignores a separate "tag".
  const std::string path =
      "/images/create?fromSrc=-&repo=" + escaped(image.name + ":" + image.tag) +
      "&changes=" + escaped("LABEL " + image.label);
  // It answers 200 before it has read the tar; later errors are a line of the answer.
  const std::string answer = call("POST", path, image.tar, deadline);
  if (answer.find("\"error\"") != std::string::npos) {
    throw Error(Code::unavailable, "the container engine did not import the image: " +
                                       answer.substr(0, kMaxMessageBytes));
  }
}

void EngineClient::remove_image(const std::string& image, Deadline deadline) const {
  call("DELETE", "/images/" + escaped(image), "", deadline);
}

void EngineClient::create(const std::string& name, const std::string& body,
                          Deadline deadline) const {
  call("POST", "/containers/create?name=" + escaped(name), body, deadline);
}

void EngineClient::start(const std::string& name, Deadline deadline) const {
  call("POST", "/containers/" + escaped(name) + "/start", "", deadline);
}

pid_t EngineClient::init_pid(const std::string& name, Deadline deadline) const {
  const json::value value =
      parse(call("GET", "/containers/" + escaped(name) + "/json", "", deadline));
  const json::value* state = object_of(value).if_contains("State");
  const json::value* pid = state ? object_of(*state).if_contains("Pid") : nullptr;
  if (!pid || !pid->is_int64()) broken("no valid state of " + name);
  return static_cast<pid_t>(pid->get_int64());
}

void EngineClient::remove(const std::string& name, Deadline deadline) const {
  try {
    call("DELETE", "/containers/" + escaped(name) + "?force=1&v=1", "", deadline);
  } catch (const Error& error) {
    if (error.code() != Code::not_found) throw;
  }
}

std::vector<std::string> EngineClient::containers(const std::string& label,
                                                  Deadline deadline) const {
  const std::string filters =
      json::serialize(json::object{{"label", json::array{json::string(label)}}});
  const json::value value =
      parse(call("GET", "/containers/json?all=1&filters=" + escaped(filters), "", deadline));
  if (!value.is_array()) broken("an invalid list of containers");
  std::vector<std::string> found;
  for (const json::value& container : value.get_array()) {
    const auto names = texts_in(object_of(container), "Names");
    if (names.empty()) continue;
    found.push_back(names[0].starts_with("/") ? names[0].substr(1) : names[0]);
  }
  return found;
}

}  // namespace moorage::backends
