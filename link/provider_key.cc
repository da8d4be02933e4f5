#include "link/provider_key.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <boost/json.hpp>
#include <chrono>

#include "base/error.h"
#include "base/net/certificates.h"
#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/os/process.h"

namespace moorage::link {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr size_t kMaxKeyBytes = 16 << 10;
constexpr size_t kMaxMessageBytes = 8 * kMaxKeyBytes;  // escaped
constexpr milliseconds kHelperDeadline{15'000};
constexpr milliseconds kReceiveDeadline{20'000};

base::Fd open_secret(const std::string& path) {
  // Non-blocking: the open of a pipe would wait for its writer.
  return base::open_file(path, O_RDONLY | O_NONBLOCK);
}

std::string read_private_file(const std::string& path) {
  const auto refuse = [&path](const std::string& why, const std::string& hint) {
    throw Error(Code::permission_denied, "cannot use the key in " + path + ": " + why, hint);
  };
  const base::Fd file = open_secret(path);
  struct stat info;
  base::check(fstat(file.get(), &info), "read the mode of " + path);
  if (!S_ISREG(info.st_mode))
    refuse("it is not a regular file", "put the provider's API key there, on one line");
  if (info.st_uid != 0 || (info.st_mode & 077) != 0)
    refuse("others than root may read the file", "chown root " + path + "; chmod 600 " + path);
  return base::read_up_to(file.get(), kMaxKeyBytes);
}

// The output of sh or openssl, as root.
std::string read_by_helper(const base::LinkKey& key) {
  const auto trouble = [&key](const std::string& what) {
    return Error(Code::unavailable, "the credential " + key.credential + ": " + what,
                 "moorage credential test " + key.credential);
  };
  base::ProcessOptions options;
  options.deadline = kHelperDeadline;
  options.max_output_bytes = kMaxKeyBytes;
  options.environment = {{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                         {"LANG", "C.UTF-8"},
                         {"HOME", "/root"},
                         {"USER", "root"},
                         {"LOGNAME", "root"}};
  base::Fd sealed;
  std::vector<std::string> argv{"/bin/sh", "-c", key.place};
  if (key.source == base::LinkKey::Source::sealed) {
    sealed = open_secret(key.place);
    options.input_fd = sealed.get();
    argv = base::unseal_command(key.recipient);
  }
  base::ProcessResult result;
  try {
    result = base::run_process(argv, options);
  } catch (const Error& error) {
    throw trouble(error.message());
  }
  if (result.ok()) return result.output;
  if (sealed) throw trouble("it cannot be decrypted with " + key.recipient);
  throw trouble(result.signal != 0
                    ? "its command was ended by signal " + std::to_string(result.signal)
                    : "its command failed with exit code " + std::to_string(result.exit_code));
}

}  // namespace

std::string read_key(const base::LinkKey& key) {
  if (key.source == base::LinkKey::Source::missing) {
    throw Error(
        Code::not_found, "root has no credential " + key.credential + " for the provider",
        "add it as root: moorage credential add " + key.credential + " --for URL --from-stdin");
  }
  const bool is_file = key.source == base::LinkKey::Source::file;
  std::string text = is_file ? read_private_file(key.place) : read_by_helper(key);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  if (!text.empty()) return text;
  throw Error(Code::permission_denied,
              is_file ? "cannot use the key in " + key.place + ": the file is empty"
                      : "the credential " + key.credential + " is empty",
              "put the provider's API key there, on one line");
}

std::string read_provider_key(const base::LinkConfig& config) {
  if (config.key.empty()) return {};
  return read_key(base::parse_link_key(base::read_file(config.key)));
}

void send_key(int pipe, const base::LinkConfig& config) {
  json::object message;
  try {
    message["key"] = read_provider_key(config);
  } catch (const Error& error) {
    message["code"] = base::code_name(error.code());
    message["message"] = error.message();
    message["hint"] = error.hint();
  }
  base::write_all(pipe, json::serialize(message));
}

std::string receive_key(int pipe) {
  const auto until = std::chrono::steady_clock::now() + kReceiveDeadline;
  std::string text;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0 || !base::wait_readable(pipe, static_cast<int>(left.count())))
      throw Error(Code::deadline_exceeded, "the provider's key was not read in time");
    std::string piece(kMaxKeyBytes, '\0');
    const ssize_t count = base::check(::read(pipe, piece.data(), piece.size()), "read a key");
    if (count == 0) break;
    text.append(piece, 0, static_cast<size_t>(count));
    if (text.size() > kMaxMessageBytes) throw Error(Code::corrupted, "the key is too long");
  }
  boost::system::error_code invalid;
  const json::value value = json::parse(text, invalid);
  const json::object* object = invalid ? nullptr : value.if_object();
  const auto field = [object](const char* name) {
    const json::value* found = object ? object->if_contains(name) : nullptr;
    return found && found->is_string() ? std::string(found->get_string()) : std::string();
  };
  if (std::string key = field("key"); !key.empty()) return key;
  if (field("message").empty())
    throw Error(Code::unavailable, "the process that reads the provider's key ended without it");
  throw Error(base::code_from_name(field("code")), field("message"), field("hint"));
}

}  // namespace moorage::link
