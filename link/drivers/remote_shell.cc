#include "link/drivers/remote_shell.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/digest.h"
#include "base/error.h"
#include "link/drivers/json_reader.h"

namespace moorage::link {
namespace {

constexpr size_t kMaxFile = 64 << 20;  // programs; trees go through the outpost
constexpr size_t kMaxDirectory = 200;
constexpr int64_t kNoCommand = 127;
constexpr int64_t kKilled = 128;  // and the signal; some providers say -1

bool is_plain_directory(std::string_view path) {
  const bool plain = std::all_of(path.begin(), path.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '/' ||
           c == '.' || c == '_' || c == '-';
  });
  return plain && path.starts_with('/') && path.size() > 1 && path.size() <= kMaxDirectory &&
         path.find("..") == std::string_view::npos;
}

std::string contents_of(const File& file) {
  struct stat found {};
  base::check(::fstat(file.content, &found), "read the size of a program");
  if (static_cast<uint64_t>(found.st_size) > kMaxFile)
    throw Error(Code::resource_exhausted, file.path + " is too large to be sent as one file");
  return base::read_at(file.content, static_cast<size_t>(found.st_size), 0);
}

std::string digest_there(RemoteShell& shell, const std::string& path, Deadline deadline) {
  base::Sha256 digest;
  const bool exists = shell.download(
      path, [&digest](std::string_view bytes) { digest.add(bytes); }, deadline);
  return exists ? base::to_hex(digest.raw()) : "";
}

// "sha256sum < PATH" prints the digest first. Empty: no file.
std::string look_up_digest(RemoteShell& shell, const std::string& path, Deadline deadline) {
  const auto result = shell.execute("sha256sum < " + shell_quoted(path) + " 2>/dev/null", deadline);
  if (result.exit_code == kNoCommand) return digest_there(shell, path, deadline);
  return result.exit_code == 0 ? result.output.substr(0, 64) : "";
}

// A shell that was killed, as by the end of its machine, says nothing about the image.
[[noreturn]] void refuse(const std::string& what, const RemoteShell::Result& result) {
  if (result.exit_code < 0 || result.exit_code > kKilled) {
    throw Error(Code::unavailable,
                "the machine could not " + what + ": its shell was killed with exit code " +
                    std::to_string(result.exit_code),
                "try again");
  }
  throw Error(Code::unsupported,
              "the machine cannot " + what + ": exit code " + std::to_string(result.exit_code) +
                  ": " + printable(result.output),
              "its image needs sh, chmod, mkdir and mv, and a writable directory");
}

}  // namespace

std::string shell_quoted(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string form_body(const std::vector<FormPart>& parts, const std::string& boundary) {
  std::string body;
  for (const FormPart& part : parts) {
    body += "--" + boundary + "\r\nContent-Disposition: form-data; name=\"" + part.name + "\"";
    if (!part.filename.empty()) {
      body += "; filename=\"" + part.filename + "\"\r\nContent-Type: application/octet-stream";
    }
    body.append("\r\n\r\n").append(part.bytes).append("\r\n");
  }
  return body + "--" + boundary + "--\r\n";
}

std::string make_directory(RemoteShell& shell, const std::string& wanted, Deadline deadline) {
  // -O: in /var/tmp the name may belong to another user of the machine.
  const std::string use =
      "use() { mkdir -p \"$1\" 2>/dev/null && [ ! -h \"$1\" ] && [ -O \"$1\" ] && "
      "chmod 700 \"$1\" && [ -w \"$1\" ] && printf '%s' \"$1\"; }\n";
  // Not below what may become the sandbox's own.
  const std::string places =
      wanted.empty() ? "case \"$HOME/\" in /home/user/*|/workspace/*|/) ;; *) "
                       "use \"$HOME/.moorage\" && exit 0 ;; esac\nuse /var/tmp/.moorage\n"
                     : "use " + shell_quoted(wanted) + "\n";
  const auto result = shell.execute(use + places, deadline);
  if (result.exit_code != 0) refuse("make a directory for Moorage", result);
  if (!is_plain_directory(result.output)) {
    throw Error(Code::unsupported,
                "the machine names an unusable directory: " + printable(result.output),
                "set `directory` to a short absolute path");
  }
  return result.output;
}

void put_file(RemoteShell& shell, const File& file, Deadline deadline) {
  if (look_up_digest(shell, file.path, deadline) == file.digest) return;
  const std::string bytes = contents_of(file);
  const std::string part = file.path + "." + base::random_hex(6) + ".part";
  const std::string from = shell_quoted(part);
  const std::string directory = file.path.substr(0, file.path.rfind('/'));
  const auto made = shell.execute("mkdir -p " + shell_quoted(directory), deadline);
  if (made.exit_code != 0) refuse("make " + directory, made);
  shell.upload(part, bytes, deadline);
  if (look_up_digest(shell, part, deadline) != file.digest) {
    shell.execute("rm -f " + from, deadline);
    throw Error(Code::unavailable, file.path + " arrived damaged on the machine", "try again");
  }
  std::string mode = "0000";
  for (size_t i = 0; i < 3; ++i) mode[3 - i] = static_cast<char>('0' + (file.mode >> (3 * i) & 7));
  const auto moved = shell.execute(
      "chmod " + mode + " " + from + " && mv -f " + from + " " + shell_quoted(file.path), deadline);
  if (moved.exit_code != 0) refuse("install " + file.path, moved);
}

}  // namespace moorage::link
