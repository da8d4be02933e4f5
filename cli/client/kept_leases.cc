#include "cli/client/kept_leases.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/os/files.h"
#include "cli/client/http_client.h"

namespace moorage::cli {
namespace {

constexpr size_t kMaxTokenBytes = 256;
constexpr size_t kMaxOfOneGeneration = 32;  // the daemon allows one more

size_t dots(const std::string& text) { return std::count(text.begin(), text.end(), '.'); }

// The "ws_12.5" in a token.
std::string short_name(const std::string& token) { return token.substr(0, token.rfind('.')); }

bool is_of_us_alone(const std::string& path) {
  struct stat found {};
  return lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & 077) == 0;
}

struct Kept {
  std::string token;
  timespec written{};
};

std::optional<Kept> read(const std::string& path) {
  const auto text = base::read_file_if_exists(path, kMaxTokenBytes);
  struct stat found {};
  if (!text || stat(path.c_str(), &found) != 0) return std::nullopt;
  return Kept{text->substr(0, text->find('\n')), found.st_mtim};
}

// The files of one generation, the latest first.
std::string all_of(const std::string& directory, const std::string& generation) {
  std::vector<Kept> found;
  for (const auto& name : base::list_directory(directory)) {
    if (!name.ends_with("." + generation)) continue;
    if (auto kept = read(directory + "/" + name)) found.push_back(*std::move(kept));
  }
  std::sort(found.begin(), found.end(), [](const Kept& a, const Kept& b) {
    return std::pair(a.written.tv_sec, a.written.tv_nsec) >
           std::pair(b.written.tv_sec, b.written.tv_nsec);
  });
  if (found.size() > kMaxOfOneGeneration) found.resize(kMaxOfOneGeneration);
  std::string header = generation;
  for (const auto& kept : found) header += "," + kept.token;
  return header;
}

}  // namespace

std::string state_home() {
  const char* given = std::getenv("XDG_STATE_HOME");
  if (given != nullptr && *given == '/') return given;
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home != '/') return "";
  return std::string(home) + "/.local/state";
}

KeptLeases::KeptLeases(const std::string& socket) {
  const std::string home = state_home();
  if (!home.empty()) directory_ = home + "/moorage/leases/" + percent_encode(socket);
}

void KeptLeases::prepare() const {
  const char* hint = "--json prints the secret instead of saving it";
  if (directory_.empty())
    throw Error(Code::unsupported, "cannot save the lease's secret: HOME is not set", hint);
  try {
    base::make_directories(directory_, 0700);
  } catch (Error& error) {
    throw Error(error.code(), "cannot save the lease's secret: " + error.message(), hint);
  }
  if (!is_of_us_alone(directory_)) {
    throw Error(Code::permission_denied,
                "cannot save the lease's secret: others have access to " + directory_,
                "chmod 700 " + directory_);
  }
}

std::string KeptLeases::keep(const std::string& token) const {
  const std::string name = short_name(token);
  const std::string workspace = name.substr(0, name.find('.') + 1);
  base::write_file(directory_ + "/" + name, token + "\n", 0600);
  for (const auto& other : base::list_directory(directory_)) {
    if (other.starts_with(workspace) && other != name) unlink((directory_ + "/" + other).c_str());
  }
  return name;
}

std::string KeptLeases::of_workspace(const std::string& id) const {
  if (id.empty() || !is_of_us_alone(directory_)) return "";
  for (const auto& name : base::list_directory(directory_)) {
    if (name.starts_with(id + ".")) return name;
  }
  return "";
}

std::string KeptLeases::header(const std::string& named) const {
  const bool plain = dots(named) < 2 && named.find_first_of("/,") == named.npos;
  if (!plain || !is_of_us_alone(directory_)) return named;
  if (dots(named) == 0) return all_of(directory_, named);
  const auto kept = read(directory_ + "/" + named);
  return kept ? kept->token : named;
}

}  // namespace moorage::cli
